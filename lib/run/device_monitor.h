// Reads the sensors of a device periodically during training.
//
// Threads: latest() may be called from any thread; the sensor is read by a thread of the monitor.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "device/sensor.h"

namespace dltrain {

class DeviceMonitor {
 public:
  // `warn` is called once, by the monitor's thread, with a sentence about the first reading in
  // which the device was throttled. `whose` names the GPU: "GPU of rank 2 on n07".
  DeviceMonitor(std::unique_ptr<DeviceSensor> sensor, std::string whose,
                std::function<void(const std::string&)> warn,
                std::chrono::milliseconds every = std::chrono::seconds(1));
  ~DeviceMonitor();
  DeviceMonitor(const DeviceMonitor&) = delete;
  DeviceMonitor& operator=(const DeviceMonitor&) = delete;

  // Returns the newest reading, or nothing before the first.
  std::optional<DeviceReading> latest() const;

 private:
  void work();

  std::unique_ptr<DeviceSensor> sensor_;
  std::string whose_;
  std::function<void(const std::string&)> warn_;  // empty once it has been called
  std::chrono::milliseconds every_;
  mutable std::mutex mutex_;
  std::condition_variable stopping_;
  bool stop_ = false;
  std::optional<DeviceReading> latest_;
  std::thread thread_;  // last
};

}  // namespace dltrain
