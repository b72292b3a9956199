// GPUs that stall in operations which their hosts have only queued: which one is named, and when.
#include "catch.h"
#include "verdict.h"

using namespace dltrain;
using namespace dltrain::test;
using Catch::Matchers::Contains;

namespace {

constexpr int kWatchDevicesGroup = RankWatch::kFirstDeviceGroup;

// All ranks queue three operations; `device` says how far the rank's GPU comes.
std::string device_verdict(
    int ranks, const std::function<void(int rank, RankWatch& watch,
                                        const std::function<ObservedOperation(int)>& op)>& device) {
  return test::verdict_of(ranks, [&](int rank, RankWatch& watch, const CallSubject& about) {
    const auto operation = [&](int number) {
      return ObservedOperation{.name = "all_reduce",
                               .count = 10,
                               .dtype = DType::f32,
                               .number = static_cast<uint64_t>(number),
                               .step = watch.step(),
                               .about = about};
    };
    for (int i = 1; i <= 3; ++i) watch.issued(kWatchDevicesGroup, operation(i));
    device(rank, watch, operation);
  });
}

}  // namespace

TEST_CASE("a GPU that does not come to an operation in which others are is named") {
  const std::string told = device_verdict(3, [](int rank, RankWatch& watch, const auto& operation) {
    watch.on_device(kWatchDevicesGroup, operation(1));
    watch.device_done(kWatchDevicesGroup, operation(1));
    if (rank != 1) watch.on_device(kWatchDevicesGroup, operation(2));
  });
  CHECK_THAT(told, Catch::Matchers::StartsWith("the GPU of rank 1 (process ") &&
                       Contains(" hangs at step 5, after all_reduce 1 of 10 f32 (layers.3.weight): "
                                "rank 0 (process ") &&
                       Contains(" has waited for it for ") &&
                       Contains(" in all_reduce 2 of 10 f32 (layers.3.weight)"));
}

TEST_CASE("a GPU that stays in an operation which others have done is named") {
  const std::string told = device_verdict(2, [](int rank, RankWatch& watch, const auto& operation) {
    watch.on_device(kWatchDevicesGroup, operation(1));
    if (rank == 1) return;
    watch.device_done(kWatchDevicesGroup, operation(1));
    watch.on_device(kWatchDevicesGroup, operation(2));
  });
  CHECK_THAT(told, Contains("the GPU of rank 1 (process ") &&
                       Contains(" hangs at step 5, in all_reduce 1 of 10 f32 (layers.3.weight)"));
}

TEST_CASE("an operation in which all GPUs stay is named") {
  const std::string told = device_verdict(2, [](int, RankWatch& watch, const auto& operation) {
    watch.on_device(kWatchDevicesGroup, operation(3));
  });
  CHECK_THAT(told,
             Catch::Matchers::StartsWith("the GPU of rank 0 (process ") &&
                 Contains(" hangs at step 5, in all_reduce 3 of 10 f32 (layers.3.weight) for ") &&
                 Contains("2 GPUs are in it and none comes to its end"));
}

TEST_CASE("a host that has not queued an operation is named, not its GPU") {
  const std::string told = device_verdict(2, [](int rank, RankWatch& watch, const auto& operation) {
    if (rank == 1) return;
    watch.issued(kWatchDevicesGroup, operation(4));
    watch.on_device(kWatchDevicesGroup, operation(4));
  });
  CHECK_THAT(told, Catch::Matchers::StartsWith("rank 1 (process ") &&
                       Contains(" hangs at step 5, after all_reduce 3 of 10 f32"));
}

TEST_CASE("a rank whose host waits for another one's GPU is not taken for the one that hangs") {
  // Rank 1's GPU has stopped; its host waits for rank 0's, whose GPU waits for it.
  const std::string told = device_verdict(2, [](int rank, RankWatch& watch, const auto& operation) {
    watch.on_device(kWatchDevicesGroup, operation(1));
    watch.device_done(kWatchDevicesGroup, operation(1));
    if (rank == 0) {
      watch.on_device(kWatchDevicesGroup, operation(2));
    } else {
      watch.issued(0, operation(7));
      watch.waiting(0, operation(7));
    }
  });
  CHECK_THAT(told, Catch::Matchers::StartsWith("the GPU of rank 1 (process "));
}
