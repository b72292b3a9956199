#include "run/device_monitor.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/signals.h"

namespace dltrain {
namespace {

// "the GPU runs slower than it could (power cap): 699 W, 67 °C, 1410 MHz"
std::string warning_of(const std::string& whose, const DeviceReading& reading) {
  std::string state;
  const auto add = [&](double value, const char* unit) {
    if (std::isnan(value)) return;
    state += fmt::format("{}{:.0f} {}", state.empty() ? ": " : ", ", value, unit);
  };
  add(reading.power_watts, "W");
  add(reading.temperature_celsius, "°C");
  add(reading.clock_mhz, "MHz");
  return fmt::format("the {} runs slower than it could ({}){}", whose, reading.throttled, state);
}

}  // namespace

DeviceMonitor::DeviceMonitor(std::unique_ptr<DeviceSensor> sensor, std::string whose,
                             std::function<void(const std::string&)> warn,
                             std::chrono::milliseconds every)
    : sensor_(std::move(sensor)), whose_(std::move(whose)), warn_(std::move(warn)), every_(every) {
  const BlockSignals block;
  thread_ = std::thread([this] { work(); });
}

DeviceMonitor::~DeviceMonitor() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopping_.notify_all();
  thread_.join();
}

void DeviceMonitor::work() {
  for (;;) {
    const DeviceReading reading = sensor_->read();
    if (!reading.throttled.empty() && warn_) {
      std::exchange(warn_, {})(warning_of(whose_, reading));
    }
    std::unique_lock lock(mutex_);
    latest_ = reading;
    if (stopping_.wait_for(lock, every_, [this] { return stop_; })) return;
  }
}

std::optional<DeviceReading> DeviceMonitor::latest() const {
  const std::lock_guard lock(mutex_);
  return latest_;
}

}  // namespace dltrain
