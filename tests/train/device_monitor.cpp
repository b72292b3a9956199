// The thread that asks a device about itself: newest reading, one warning, a prompt end.
#include "train/device_monitor.h"

#include <atomic>

#include "catch.h"

using namespace dltrain;

namespace {

struct Script {
  std::atomic<int> reads = 0;
  std::atomic<int> throttled_from = 1 << 30;
};

class ScriptedSensor final : public DeviceSensor {
 public:
  explicit ScriptedSensor(Script& script) : script_(script) {}
  DeviceReading read() override {
    DeviceReading out;
    out.power_watts = 699.6;
    out.clock_mhz = 1410;
    const int number = ++script_.reads;
    out.utilization = number;
    if (number >= script_.throttled_from) out.throttled = "power cap";
    return out;
  }

 private:
  Script& script_;
};

template <typename Condition>
bool comes_true(const Condition& condition) {
  for (int i = 0; i < 5000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

TEST_CASE("the newest reading is there, and slowing down is told once") {
  Script script;
  DeviceMonitor monitor(std::make_unique<ScriptedSensor>(script), std::chrono::milliseconds(1));
  REQUIRE(comes_true([&] { return monitor.latest().has_value(); }));
  const double first = monitor.latest()->utilization;
  CHECK(comes_true([&] { return monitor.latest()->utilization > first; }));
  CHECK(monitor.take_warning().empty());
  script.throttled_from = 0;
  std::string warning;
  CHECK(comes_true([&] { return !(warning = monitor.take_warning()).empty(); }));
  CHECK(warning == "the GPU runs slower than it could (power cap): 700 W, 1410 MHz");
  const int reads = script.reads;
  CHECK(comes_true([&] { return script.reads > reads + 2; }));
  CHECK(monitor.take_warning().empty());
}

TEST_CASE("a monitor ends without waiting for its next reading") {
  Script script;
  const auto begin = std::chrono::steady_clock::now();
  {
    const DeviceMonitor monitor(std::make_unique<ScriptedSensor>(script), std::chrono::hours(1));
    CHECK(comes_true([&] { return script.reads == 1; }));
  }
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::minutes(1));
}

}  // namespace
