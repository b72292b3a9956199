// What the watches of several ranks conclude from what each of them is told.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>

#include "base/error.h"
#include "catch.h"
#include "comm/watch.h"
#include "ranks.h"

namespace dltrain::test {

// In step 4 (counted from 0) `act` tells each rank's watch what the rank does, then nothing more is
// done. What they do is about "layers.3.weight". Returns the reported failure, which all have
// alike, within the timeout of 1.5 s and a while.
inline std::string failure_of_rank(
    int ranks,
    const std::function<void(int rank, RankWatch& watch, const OperationSubject& subject)>& act) {
  constexpr std::chrono::milliseconds kTimeout{1500};
  const auto begin = Clock::now();
  const auto results = run_ranks(ranks, [&](RankContext& context) {
    StoreClient store = context.client();
    std::mutex mutex;
    std::condition_variable changed;
    std::string told;
    RankWatch watch(store, {.rank = context.rank,
                            .size = context.size,
                            .timeout = kTimeout,
                            .straggler_factor = 0,
                            .on_lost = [&](const std::string& message) {
                              const std::lock_guard lock(mutex);
                              told = message;
                              changed.notify_all();
                            }});
    const auto subject = std::make_shared<const std::string>("layers.3.weight");
    watch.at_step_begin(4);
    act(context.rank, watch, subject);
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return !told.empty(); });
    throw Error(ExitCode::rank, told);
  });
  CHECK(Clock::now() - begin < kTimeout + std::chrono::milliseconds(20'000));
  for (const RankResult& result : results) {
    CHECK(result.code == static_cast<int>(ExitCode::rank));
    CHECK(result.message == results[0].message);
  }
  return results[0].message;
}

}  // namespace dltrain::test
