// GPUs that stall in operations which their hosts have only queued: which one is named, and when.
#include <thread>

#include "base/error.h"
#include "catch.h"
#include "comm/watch.h"
#include "ranks.h"

using namespace dltrain;
using namespace dltrain::test;
using Catch::Matchers::Contains;
using std::chrono::milliseconds;

namespace {

constexpr int kGroup = 8;
constexpr milliseconds kTimeout{1500};

// All ranks queue three operations in step 4; `device` says how far the rank's GPU comes. Each rank
// then has the verdict as the message of its end. Within the timeout and a second.
std::string verdict_of(
    int ranks, const std::function<void(int rank, RankWatch& watch,
                                        const std::function<ObservedOperation(int)>& op)>& device) {
  const auto begin = Clock::now();
  const auto results = run_ranks(ranks, [&](RankContext& context) {
    StoreClient store = context.client();
    std::mutex mutex;
    std::condition_variable changed;
    std::string told;
    RankWatch watch(store.options(), {.rank = context.rank,
                                      .size = context.size,
                                      .timeout = kTimeout,
                                      .straggler_factor = 0,
                                      .on_lost = [&](const std::string& message) {
                                        const std::lock_guard lock(mutex);
                                        told = message;
                                        changed.notify_all();
                                      }});
    const float data = 0;
    watch.set_names([&](const void* at) { return at == &data ? "layers.3.weight" : ""; });
    watch.at_step_begin(4);
    const auto operation = [&](int number) {
      return ObservedOperation{.name = "all_reduce",
                               .data = &data,
                               .count = 10,
                               .dtype = DType::f32,
                               .number = static_cast<uint64_t>(number),
                               .step = watch.step()};
    };
    for (int i = 1; i <= 3; ++i) watch.issued(kGroup, operation(i));
    device(context.rank, watch, operation);
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return !told.empty(); });
    throw Error(ExitCode::rank, told);
  });
  CHECK(Clock::now() - begin < kTimeout + milliseconds(10'000));
  for (const RankResult& result : results) {
    CHECK(result.code == static_cast<int>(ExitCode::rank));
    CHECK(result.message == results[0].message);
  }
  return results[0].message;
}

}  // namespace

TEST_CASE("a GPU that does not come to an operation in which others are is named") {
  const std::string told = verdict_of(3, [](int rank, RankWatch& watch, const auto& operation) {
    watch.on_device(kGroup, operation(1));
    watch.device_done(kGroup, operation(1));
    if (rank != 1) watch.on_device(kGroup, operation(2));
  });
  CHECK_THAT(told, Catch::Matchers::StartsWith("the GPU of rank 1 (process ") &&
                       Contains(" hangs at step 5, after all_reduce 1 of 10 f32 (layers.3.weight): "
                                "rank 0 (process ") &&
                       Contains(" has waited for it for ") &&
                       Contains(" in all_reduce 2 of 10 f32 (layers.3.weight)"));
}

TEST_CASE("a GPU that stays in an operation which others have done is named") {
  const std::string told = verdict_of(2, [](int rank, RankWatch& watch, const auto& operation) {
    watch.on_device(kGroup, operation(1));
    if (rank == 1) return;
    watch.device_done(kGroup, operation(1));
    watch.on_device(kGroup, operation(2));
  });
  CHECK_THAT(told, Contains("the GPU of rank 1 (process ") &&
                       Contains(" hangs at step 5, in all_reduce 1 of 10 f32 (layers.3.weight)"));
}

TEST_CASE("an operation in which all GPUs stay is named") {
  const std::string told = verdict_of(2, [](int, RankWatch& watch, const auto& operation) {
    watch.on_device(kGroup, operation(3));
  });
  CHECK_THAT(told,
             Catch::Matchers::StartsWith("the GPU of rank 0 (process ") &&
                 Contains(" hangs at step 5, in all_reduce 3 of 10 f32 (layers.3.weight) for ") &&
                 Contains("2 GPUs are in it and none comes to its end"));
}

TEST_CASE("a host that has not queued an operation is named, not its GPU") {
  const std::string told = verdict_of(2, [](int rank, RankWatch& watch, const auto& operation) {
    if (rank == 1) return;
    watch.issued(kGroup, operation(4));
    watch.on_device(kGroup, operation(4));
  });
  CHECK_THAT(told, Catch::Matchers::StartsWith("rank 1 (process ") &&
                       Contains(" hangs at step 5, after all_reduce 3 of 10 f32"));
}

TEST_CASE("a rank whose host waits for another one's GPU is not taken for the one that hangs") {
  // Rank 1's GPU has stopped; its host waits for rank 0's, whose GPU waits for it.
  const std::string told = verdict_of(2, [](int rank, RankWatch& watch, const auto& operation) {
    watch.on_device(kGroup, operation(1));
    watch.device_done(kGroup, operation(1));
    if (rank == 0) {
      watch.on_device(kGroup, operation(2));
    } else {
      watch.issued(0, operation(7));
      watch.waiting(0, operation(7));
    }
  });
  CHECK_THAT(told, Catch::Matchers::StartsWith("the GPU of rank 1 (process "));
}
