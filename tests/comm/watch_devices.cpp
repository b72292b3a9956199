// GPUs that stall in operations which their hosts have only queued: which one is named, and when.
#include <mutex>
#include <thread>

#include "catch.h"
#include "rank_failure.h"

using namespace dltrain;
using namespace dltrain::test;
using Catch::Matchers::Contains;

namespace {

constexpr int kWatchDevicesGroup = RankWatch::kFirstDeviceGroup;

// A backend whose progress the test sets.
class FakeBackend final : public CollectiveBackend {
 public:
  void set(const DeviceProgress& progress) {
    const std::lock_guard lock(mutex_);
    now_ = progress;
  }
  void queue(const CollectiveCall&, Stream&) override {}
  std::optional<CollectiveFailure> failure() override { return std::nullopt; }
  DeviceProgress progress() override {
    const std::lock_guard lock(mutex_);
    return now_;
  }
  void abort() override {}
  std::unique_ptr<CollectiveBackend> split(std::span<const int>) override { return nullptr; }

 private:
  std::mutex mutex_;
  DeviceProgress now_;
};

// All ranks queue three operations; `device` returns how far the rank's GPU comes.
std::string device_verdict(
    int ranks,
    const std::function<DeviceProgress(int rank, RankWatch& watch,
                                       const std::function<ObservedOperation(int)>& operation)>&
        device) {
  static FakeBackend backend;  // each rank is a process
  return test::failure_of_rank(ranks,
                               [&](int rank, RankWatch& watch, const OperationSubject& subject) {
                                 const auto operation = [&](int number) {
                                   return ObservedOperation{.name = "all_reduce",
                                                            .count = 10,
                                                            .dtype = DType::f32,
                                                            .number = static_cast<uint64_t>(number),
                                                            .ticket = static_cast<uint64_t>(number),
                                                            .subject = subject};
                                 };
                                 watch.track(kWatchDevicesGroup, backend);
                                 for (int i = 1; i <= 3; ++i)
                                   watch.issued(kWatchDevicesGroup, operation(i));
                                 // The watch sees the first operation before the device goes on.
                                 backend.set({.begun = 1, .done = 0});
                                 std::this_thread::sleep_for(std::chrono::milliseconds(400));
                                 backend.set(device(rank, watch, operation));
                               });
}

}  // namespace

TEST_CASE("a GPU that does not come to an operation in which others are is named") {
  const std::string told = device_verdict(3, [](int rank, RankWatch&, const auto&) {
    return DeviceProgress{.begun = rank == 1 ? 1u : 2u, .done = 1};
  });
  CHECK_THAT(told, Catch::Matchers::StartsWith("the GPU of rank 1 (process ") &&
                       Contains(" hangs at step 5, after all_reduce 1 of 10 f32 (layers.3.weight): "
                                "rank 0 (process ") &&
                       Contains(" has waited for it for ") &&
                       Contains(" in all_reduce 2 of 10 f32 (layers.3.weight)"));
}

TEST_CASE("a GPU that stays in an operation which others have done is named") {
  const std::string told = device_verdict(2, [](int rank, RankWatch&, const auto&) {
    return rank == 1 ? DeviceProgress{.begun = 1, .done = 0}
                     : DeviceProgress{.begun = 2, .done = 1};
  });
  CHECK_THAT(told, Contains("the GPU of rank 1 (process ") &&
                       Contains(" hangs at step 5, in all_reduce 1 of 10 f32 (layers.3.weight)"));
}

TEST_CASE("an operation in which all GPUs stay is named") {
  const std::string told = device_verdict(
      2, [](int, RankWatch&, const auto&) { return DeviceProgress{.begun = 3, .done = 2}; });
  CHECK_THAT(told,
             Catch::Matchers::StartsWith("the GPU of rank 0 (process ") &&
                 Contains(" hangs at step 5, in all_reduce 3 of 10 f32 (layers.3.weight) for ") &&
                 Contains("2 GPUs execute it and none completes it"));
}

TEST_CASE("a host that has not queued an operation is named, not its GPU") {
  const std::string told = device_verdict(2, [](int rank, RankWatch& watch, const auto& operation) {
    if (rank == 1) return DeviceProgress{.begun = 3, .done = 3};
    watch.issued(kWatchDevicesGroup, operation(4));
    return DeviceProgress{.begun = 4, .done = 3};
  });
  CHECK_THAT(told, Catch::Matchers::StartsWith("rank 1 (process ") &&
                       Contains(" hangs at step 5, after all_reduce 3 of 10 f32"));
}

TEST_CASE("a rank whose host waits for another one's GPU is not taken for the one that hangs") {
  // Rank 1's GPU has stopped; its host waits for rank 0's, whose GPU waits for it.
  const std::string told = device_verdict(2, [](int rank, RankWatch& watch, const auto& operation) {
    if (rank == 0) return DeviceProgress{.begun = 2, .done = 1};
    watch.issued(0, operation(7));
    watch.waiting(0, operation(7));
    return DeviceProgress{.begun = 1, .done = 1};
  });
  CHECK_THAT(told, Catch::Matchers::StartsWith("the GPU of rank 1 (process "));
}

TEST_CASE("of two ranks that exchange a message the one that does not come is named") {
  const bool on_device = GENERATE(false, true);
  static FakeBackend backend;
  const std::string told =
      failure_of_rank(3, [&](int rank, RankWatch& watch, const OperationSubject& subject) {
        const int group = on_device ? kWatchDevicesGroup : 0;
        const ObservedOperation receive{.name = "receive",
                                        .count = 10,
                                        .dtype = DType::f32,
                                        .ticket = 1,
                                        .peer = 2,
                                        .subject = subject};
        if (on_device) watch.track(group, backend);
        if (rank != 0) return;  // rank 1 takes no part
        watch.issued(group, receive);
        if (on_device) {
          backend.set({.begun = 1, .done = 0});
        } else {
          watch.waiting(group, receive);
        }
      });
  CHECK_THAT(told, Catch::Matchers::StartsWith("rank 2 (process ") &&
                       Contains(" hangs at step 5: rank 0 (process ") &&
                       Contains(" in receive of 10 f32 with rank 2 (layers.3.weight)"));
}
