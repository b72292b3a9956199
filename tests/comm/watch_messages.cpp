// Messages between two ranks that do not come to an end: who is named, and that it is not one who
// has done its part.
#include <atomic>
#include <memory>
#include <thread>

#include "verdict.h"

using namespace dltrain;
using namespace dltrain::test;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using std::chrono::milliseconds;

namespace {

constexpr int kWatchMessagesGroup = RankWatch::kFirstDeviceGroup;

ObservedOperation message(const char* name, const CallSubject& about, int64_t step,
                          ObservedMessage to, ObservedMessage from) {
  return {.name = name,
          .count = 10,
          .dtype = DType::f32,
          .to = to,
          .from = from,
          .step = step,
          .about = about};
}

// Of step 4.
ObservedOperation send(const CallSubject& about, int to, uint64_t number) {
  return message("send", about, 4, {to, number}, {});
}
ObservedOperation receive(const CallSubject& about, int from, uint64_t number) {
  return message("receive", about, 4, {}, {from, number});
}
// Round a ring of three.
ObservedOperation exchange(const CallSubject& about, int rank, uint64_t number) {
  return message("exchange", about, 4, {(rank + 1) % 3, number}, {(rank + 2) % 3, number});
}

}  // namespace

TEST_CASE("a host that does not come to a message in which another one waits is named") {
  const auto told = verdict_of(3, [](int rank, RankWatch& watch, const CallSubject& about) {
    // Rank 1 passes on what it has from rank 0; it has taken one message and hangs.
    if (rank == 0) {
      for (const uint64_t number : {1, 2}) watch.issued(0, send(about, 1, number));
      watch.waiting(0, send(about, 1, 2));
    } else if (rank == 1) {
      watch.issued(0, receive(about, 0, 1));
    } else {
      watch.issued(0, receive(about, 1, 1));
      watch.waiting(0, receive(about, 1, 1));
    }
  });
  CHECK_THAT(told, StartsWith("rank 1 (process ") &&
                       Contains(" hangs at step 5, after receive of 10 f32 from rank 0 (message 1) "
                                "(layers.3.weight): rank 0 (process ") &&
                       Contains(" in send of 10 f32 to rank 1 (message 2) (layers.3.weight)"));
}

TEST_CASE("a rank that has sent already is not blamed by the one that waits") {
  const auto told = verdict_of(3, [](int rank, RankWatch& watch, const CallSubject& about) {
    watch.issued(0, exchange(about, rank, 1));
    if (rank == 2) return;  // has not come to the second one
    watch.issued(0, exchange(about, rank, 2));
    // Rank 1 computes: it has issued what rank 0 sends to it, and waits for nothing.
    if (rank == 0) watch.waiting(0, exchange(about, 0, 2));
  });
  CHECK_THAT(told, StartsWith("rank 2 (process ") &&
                       Contains(" hangs at step 5, after exchange of 10 f32 to rank 0 (message 1) "
                                "from rank 1 (message 1)"));
}

TEST_CASE("a GPU that does not come to a message in which another one is, is named") {
  const auto told = verdict_of(3, [](int rank, RankWatch& watch, const CallSubject& about) {
    for (const uint64_t number : {1, 2})
      watch.issued(kWatchMessagesGroup, exchange(about, rank, number));
    watch.on_device(kWatchMessagesGroup, exchange(about, rank, 1));
    watch.device_done(kWatchMessagesGroup, exchange(about, rank, 1));
    if (rank != 1) watch.on_device(kWatchMessagesGroup, exchange(about, rank, 2));
  });
  CHECK_THAT(told, StartsWith("the GPU of rank 1 (process ") &&
                       Contains(" hangs at step 5, after exchange of 10 f32 to rank 2 (message 1) "
                                "from rank 0 (message 1)") &&
                       Contains(" in exchange of 10 f32 to rank 1 (message 2) from rank 2 "
                                "(message 2) (layers.3.weight)"));
}

TEST_CASE("a GPU that stays in a message which the other one has done is named") {
  const auto told = verdict_of(2, [](int rank, RankWatch& watch, const CallSubject& about) {
    const auto own = rank == 0 ? send(about, 1, 1) : receive(about, 0, 1);
    watch.issued(kWatchMessagesGroup, own);
    watch.on_device(kWatchMessagesGroup, own);
    if (rank == 0) watch.device_done(kWatchMessagesGroup, own);
  });
  CHECK_THAT(told, StartsWith("the GPU of rank 1 (process ") &&
                       Contains(" hangs at step 5, in receive of 10 f32 from rank 0 (message 1)") &&
                       Contains("the other ranks are done with it"));
}

TEST_CASE("a message in which all its GPUs stay is named") {
  const auto told = verdict_of(3, [](int rank, RankWatch& watch, const CallSubject& about) {
    watch.issued(kWatchMessagesGroup, exchange(about, rank, 1));
    watch.on_device(kWatchMessagesGroup, exchange(about, rank, 1));
  });
  CHECK_THAT(told, StartsWith("the GPU of rank 0 (process ") &&
                       Contains("in exchange of 10 f32 to rank 1 (message 1) from rank 2") &&
                       Contains("3 GPUs are in it and none comes to its end"));
}

// The same from real messages.
TEST_CASE("a rank that hangs among messages is named by all") {
  const auto results = run_ranks(3, [](RankContext& context) {
    StoreClient store = context.client();
    std::unique_ptr<Collectives> group;  // outlives the watch, which may abandon it
    std::atomic<Collectives*> joined = nullptr;
    RankWatch watch(store.options(), {.rank = context.rank,
                                      .size = context.size,
                                      .timeout = milliseconds(600),
                                      .straggler_factor = 0,
                                      // So that what waits ends and tells the verdict.
                                      .on_lost = [&](const std::string&) {
                                        if (joined != nullptr) joined.load()->abandon();
                                      }});
    group = make_gloo(store, {.rank = context.rank,
                              .size = context.size,
                              .timeout = milliseconds(20'000),
                              .observer = &watch});
    joined = group.get();
    const int next = (context.rank + 1) % 3, previous = (context.rank + 2) % 3;
    std::vector<float> out(10), in(10);
    for (int step = 0; step < 100; ++step) {
      watch.at_step_begin(step);
      if (step == 4 && context.rank == 2) std::this_thread::sleep_for(milliseconds(20'000));
      group->wait(group->exchange({out.data(), 10, next}, {in.data(), 10, previous}, DType::f32,
                                  context.stream),
                  context.stream);
      watch.at_step_end(step);
    }
  });
  for (const int rank : {0, 1}) {
    INFO(results[static_cast<size_t>(rank)].message);
    CHECK(results[static_cast<size_t>(rank)].code == static_cast<int>(ExitCode::rank));
    CHECK_THAT(results[static_cast<size_t>(rank)].message,
               StartsWith("rank 2 (process ") && Contains(" hangs at step 5, after exchange of"));
  }
}
