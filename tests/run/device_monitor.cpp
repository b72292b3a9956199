// The thread that asks a device about itself: newest reading, one warning, a prompt end.
#include "run/device_monitor.h"

#include <atomic>
#include <csignal>
#include <mutex>

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
  std::mutex mutex;
  std::vector<std::string> told;
  const auto count = [&] {
    const std::lock_guard lock(mutex);
    return told.size();
  };
  DeviceMonitor monitor(
      std::make_unique<ScriptedSensor>(script), "GPU of rank 2 on n07",
      [&](const std::string& warning) {
        const std::lock_guard lock(mutex);
        told.push_back(warning);
      },
      std::chrono::milliseconds(1));
  REQUIRE(comes_true([&] { return monitor.latest().has_value(); }));
  const double first = monitor.latest()->utilization;
  CHECK(comes_true([&] { return monitor.latest()->utilization > first; }));
  CHECK(count() == 0);
  script.throttled_from = 0;
  CHECK(comes_true([&] { return count() > 0; }));
  const int reads = script.reads;
  CHECK(comes_true([&] { return script.reads > reads + 2; }));
  REQUIRE(count() == 1);
  CHECK(told[0] ==
        "the GPU of rank 2 on n07 runs slower than it could (power cap): 700 W, 1410 MHz");
}

TEST_CASE("signals of the process do not reach a monitor's thread") {
  struct MaskSensor final : DeviceSensor {
    std::atomic<int>& blocked;
    explicit MaskSensor(std::atomic<int>& b) : blocked(b) {}
    DeviceReading read() override {
      sigset_t mask;
      pthread_sigmask(SIG_SETMASK, nullptr, &mask);
      blocked = sigismember(&mask, SIGTERM) + 1;
      return {};
    }
  };
  std::atomic<int> blocked = 0;
  const DeviceMonitor monitor(std::make_unique<MaskSensor>(blocked), "GPU", {});
  CHECK(comes_true([&] { return blocked != 0; }));
  CHECK(blocked == 2);
}

TEST_CASE("a monitor ends without waiting for its next reading") {
  Script script;
  const auto begin = std::chrono::steady_clock::now();
  {
    const DeviceMonitor monitor(std::make_unique<ScriptedSensor>(script), "GPU", {},
                                std::chrono::hours(1));
    CHECK(comes_true([&] { return script.reads == 1; }));
  }
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::minutes(1));
}

}  // namespace
