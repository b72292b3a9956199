// Asks a device about its own state once in a while, beside the training.
//
// Threads: all functions may be called from any thread; the sensor is read by a thread of the
// monitor.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "device/sensor.h"

namespace dltrain {

class DeviceMonitor {
 public:
  explicit DeviceMonitor(std::unique_ptr<DeviceSensor> sensor,
                         std::chrono::milliseconds every = std::chrono::seconds(1));
  ~DeviceMonitor();
  DeviceMonitor(const DeviceMonitor&) = delete;
  DeviceMonitor& operator=(const DeviceMonitor&) = delete;

  // The newest; nothing before the first.
  std::optional<DeviceReading> latest() const;

  // A sentence about the first reading in which the device ran slower than it could, once; empty
  // before that and ever after.
  std::string take_warning();

 private:
  void work();

  std::unique_ptr<DeviceSensor> sensor_;
  std::chrono::milliseconds every_;
  mutable std::mutex mutex_;
  std::condition_variable stopping_;
  bool stop_ = false, warned_ = false;
  std::optional<DeviceReading> latest_;
  std::string warning_;
  std::thread thread_;
};

}  // namespace dltrain
