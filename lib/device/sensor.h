// The state of a device while it works: load, memory, bus, power, temperature, clock. Made by
// Device::make_sensor(); some devices (CPU) have none.
#pragma once

#include <limits>
#include <string>

namespace dltrain {

// Unknown fields are NaN.
struct DeviceReading {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  double utilization = kUnknown;         // share of time in which a kernel ran, 0 to 1
  double memory_mib = kUnknown;          // used by all processes
  double pcie_to_device_mib = kUnknown;  // MiB/s over the bus
  double pcie_to_host_mib = kUnknown;    // likewise
  double power_watts = kUnknown;
  double temperature_celsius = kUnknown;
  double clock_mhz = kUnknown;  // of the processors
  // The reasons for a clock that is lower than requested, if that reduces speed: "power cap",
  // "heat", "power brake", joined by ", ". Empty: it is not lower.
  std::string throttled;
};

// Threads: read() from one thread at a time, which need not be the device's.
class DeviceSensor {
 public:
  virtual ~DeviceSensor() = default;
  // May take tens of milliseconds: not for the training thread.
  virtual DeviceReading read() = 0;
};

}  // namespace dltrain
