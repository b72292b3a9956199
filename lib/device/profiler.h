// Measures the time of a device's work; made by Device::make_profiler(). Devices whose work is
// complete when a call returns (CPU) have none, because the host's clock suffices.
//
// All times are nanoseconds of std::chrono::steady_clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace dltrain {

class Stream;  // device/device.h

// The clock of all times.
inline int64_t profiler_clock(
    std::chrono::steady_clock::time_point time = std::chrono::steady_clock::now()) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

// One piece of work on the device, or all work of a call if single kernels cannot be observed.
struct DeviceActivity {
  enum class Kind : uint8_t { call, kernel, copy, zero };
  Kind kind = Kind::kernel;
  std::string name = {};  // of the kernel; "copy host to device"
  int64_t tag = -1;       // the tag of its call (DeviceProfiler::begin); −1: none
  int64_t begin = 0, end = 0;
  uint64_t bytes = 0;   // of a copy or zeroing
  uint32_t stream = 0;  // a number of the device's own
};

// Threads: used by the thread that queues the work.
class DeviceProfiler {
 public:
  virtual ~DeviceProfiler() = default;
  // Work that this thread queues on `stream` until end() has this tag (≥ 0). Pairs do not nest.
  // `label` names the range for outside tools; it must live until end().
  virtual void begin(int64_t tag, const char* label, Stream& stream) = 0;
  virtual void end(int64_t tag, Stream& stream) = 0;
  // Waits for all work of the device. Returns the work since the last call.
  virtual std::vector<DeviceActivity> collect() = 0;
  // One line: how times are measured, and why a better method is not available.
  virtual std::string method() const = 0;
};

}  // namespace dltrain
