// Ranks that die, stop, hang or are slow: every rank learns which one, and in time.
#include "comm/watch.h"

#include <csignal>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "catch.h"
#include "ranks.h"

using namespace dltrain;
using namespace dltrain::test;
using Catch::Matchers::Contains;
using std::chrono::milliseconds;

namespace {

constexpr int kWatchRankCode = static_cast<int>(ExitCode::rank);

// A watched rank that all-reduces in steps. `each` is called in every step before the collective.
void work_watch(RankContext& context, milliseconds timeout, int steps,
                const std::function<void(int step, RankWatch& watch)>& each) {
  StoreClient store = context.client();
  RankWatch watch(store, {.rank = context.rank,
                          .size = context.size,
                          .timeout = timeout,
                          .straggler_factor = 0,
                          .on_lost = [](const std::string& message) {
                            // As an application does it: say why, and end.
                            const std::string line = message + "\n";
                            if (write(STDERR_FILENO, line.data(), line.size()) < 0) _exit(99);
                            _exit(kWatchRankCode);
                          }});
  std::vector<float> data(1000, 1.0f);
  const auto subject = std::make_shared<const std::string>("layers.0.weight");
  const auto group = std::make_unique<HostCollectives>(
      store, HostGroupOptions{
                 .rank = context.rank, .size = context.size, .timeout = timeout, .watch = &watch});
  for (int step = 0; step < steps; ++step) {
    watch.at_step_begin(step);
    each(step, watch);
    group->wait(group->all_reduce(data.data(), data.size(), DType::f32, ReduceOp::max,
                                  context.stream, subject),
                context.stream);
    watch.at_step_end(step);
  }
  watch.finish();
  group->barrier();
}

bool contains_watch(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("watched ranks work and end") {
  const auto results = run_ranks(3, [](RankContext& context) {
    work_watch(context, milliseconds(20'000), 50, [](int, RankWatch&) {});
  });
  CHECK(all_well(results));
}

TEST_CASE("a killed rank is named with its step by all others, at once") {
  const auto begin = Clock::now();
  const auto results = run_ranks(4, [](RankContext& context) {
    work_watch(context, milliseconds(60'000), 1'000'000, [&](int step, RankWatch&) {
      std::this_thread::sleep_for(milliseconds(1));
      if (context.rank == 2 && step == 600) raise(SIGKILL);
    });
  });
  CHECK(Clock::now() - begin < milliseconds(20'000));
  for (const int rank : {0, 1, 3}) {
    INFO(results[rank].message);
    CHECK(results[rank].code == kWatchRankCode);
    CHECK(results[rank].message.starts_with("rank 2 (process "));
    CHECK(contains_watch(results[rank].message, ") was lost at step "));
    CHECK(contains_watch(results[rank].message, "all_reduce "));
    CHECK(contains_watch(results[rank].message, " of 1000 f32 (layers.0.weight)"));
  }
}

TEST_CASE("the reason of a rank that fails is known to the others") {
  const auto results = run_ranks(3, [](RankContext& context) {
    work_watch(context, milliseconds(20'000), 1'000'000, [&](int step, RankWatch& watch) {
      if (context.rank != 1 || step < 20) return;
      watch.report("cannot read train.csv\nline 2");
      throw Error(ExitCode::data, "cannot read train.csv");
    });
  });
  CHECK(results[1].code == static_cast<int>(ExitCode::data));
  for (const int rank : {0, 2}) {
    INFO(results[rank].message);
    CHECK(results[rank].code == kWatchRankCode);
    CHECK(results[rank].message.starts_with("rank 1 (process "));
    CHECK(contains_watch(results[rank].message, ") failed: cannot read train.csv (rank "));
  }
}

TEST_CASE("a stopped rank is named by all others within the timeout and a second") {
  const int stopped = GENERATE(0, 2);
  Clock::time_point begin = Clock::now();
  const auto results = run_ranks(3, [&](RankContext& context) {
    Clock::time_point stop;
    try {
      work_watch(context, milliseconds(1000), 1'000'000, [&](int step, RankWatch&) {
        std::this_thread::sleep_for(milliseconds(5));
        stop = Clock::now();
        if (context.rank != stopped || step < 150) return;
        // Somebody must end it: here the kernel does, after the others are through.
        if (const pid_t self = getpid(); fork() == 0) {
          std::this_thread::sleep_for(milliseconds(2500));
          kill(self, SIGKILL);
          _exit(0);
        }
        raise(SIGSTOP);
      });
    } catch (const Error& error) {
      const auto late = std::chrono::duration_cast<milliseconds>(Clock::now() - stop);
      throw Error(error.code(), fmt::format("{} after {} ms", error.what(), late.count()));
    }
  });
  CHECK(Clock::now() - begin < milliseconds(20'000));
  CHECK(results[stopped].signalled);
  for (const int rank : {0, 1, 2}) {
    if (rank == stopped) continue;
    const std::string& message = results[rank].message;
    INFO(message);
    CHECK(results[rank].code == kWatchRankCode);
    CHECK(message.starts_with(fmt::format("rank {} (process ", stopped)));
    // Its silence and what the others wait for come to the limit nearly together.
    CHECK((contains_watch(message, "has sent no heartbeat for 1.") ||
           contains_watch(message, "has waited for it for 1.")));
    CHECK(
        contains_watch(message, "noticed it at step 151, in all_reduce 151 of 1000 f32 (layers."));
    CHECK(std::stoi(message.substr(message.rfind("after ") + 6)) < 2000);
  }
}

TEST_CASE("a hanging rank is named by all, and ended itself") {
  const int hanging = GENERATE(0, 1);
  const auto results = run_ranks(3, [&](RankContext& context) {
    work_watch(context, milliseconds(600), 1'000'000, [&](int step, RankWatch&) {
      if (context.rank == hanging && step == 20) std::this_thread::sleep_for(milliseconds(60'000));
    });
  });
  for (const int rank : {0, 1, 2}) {
    INFO(results[rank].message);
    CHECK(results[rank].code == kWatchRankCode);
    if (rank == hanging) continue;  // ended by on_lost, without an exception
    CHECK(results[rank].message.starts_with(fmt::format("rank {} (process ", hanging)));
    CHECK(contains_watch(results[rank].message,
                         " hangs at step 21, after all_reduce 20 of 1000 f32"));
    CHECK(contains_watch(results[rank].message, "has waited for it for "));
    CHECK(contains_watch(results[rank].message, "in all_reduce 21 of 1000 f32"));
  }
}

// Returns the position of rank 0 in its next heartbeat.
WatchPosition next_position(StoreClient& store, int ranks) {
  const auto read = [&] {
    return WatchPosition::from_text(store.get("watch/rank/0"), ranks).value_or(WatchPosition{});
  };
  const uint64_t before = read().heartbeat;
  for (;;) {
    const WatchPosition now = read();
    if (now.heartbeat > before) return now;
    std::this_thread::sleep_for(milliseconds(2));
  }
}

TEST_CASE("a slow rank is reported once, an even group is not") {
  const bool uneven = GENERATE(true, false);
  StoreServer server("127.0.0.1", 0);
  StoreClient store({.port = server.port()});
  std::vector<std::string> told;
  {
    RankWatch watch(store,
                    {.size = 3,
                     .straggler_window = milliseconds(1),
                     .on_straggler = [&](const std::string& message) { told.push_back(message); }});
    // Rank 0 needs no time for its steps, and the others what they say.
    constexpr int kSteps = 100;
    WatchPosition others[2] = {{.rank = 1, .name = "rank 1"}, {.rank = 2, .name = "rank 2"}};
    for (int window = 0, step = 0; window < 6; ++window) {
      for (int i = 0; i < kSteps; ++i, ++step) {
        watch.at_step_begin(step);
        watch.at_step_end(step);
      }
      for (int i = 0; i < 2; ++i) {
        ++others[i].heartbeat;
        others[i].steps_done += kSteps;
        others[i].busy_us += kSteps * (uneven && i == 0 ? 12'000 : 3000);
        store.set("watch/rank/" + std::to_string(i + 1), others[i].to_text());
      }
      next_position(store, 3);
    }
    watch.finish();
  }
  if (!uneven) {
    CHECK(told.empty());
  } else {
    const std::string sentence =
        "rank 1 is slow: 12.0 ms of its own per step, the median of the others is 3.0 ms";
    CHECK(told == std::vector{sentence});
  }
}

TEST_CASE("what a rank waits for others is no time of its own") {
  StoreServer server("127.0.0.1", 0);
  StoreClient store({.port = server.port()});
  RankWatch watch(store, {.size = 2});
  const auto begin = Clock::now();
  watch.at_step_begin(0);
  std::this_thread::sleep_for(milliseconds(10));
  watch.waiting(0, {.name = "all_reduce", .number = 1});
  std::this_thread::sleep_for(milliseconds(50));
  watch.done_waiting();
  watch.at_step_end(0);
  const auto all = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
  const WatchPosition position = next_position(store, 2);
  CHECK(position.steps_done == 1);
  CHECK(position.busy_us >= 10'000);
  CHECK(position.busy_us <= all.count() - 50'000);
  watch.finish();
}

TEST_CASE("a position that names ranks which are not there is none") {
  const auto is_one = [](const WatchPosition& position) {
    return WatchPosition::from_text(position.to_text(), 3).has_value();
  };
  CHECK(is_one({.rank = 2, .host = {.group = 0, .peer = 2}, .device = {.group = 0, .peer = 0}}));
  CHECK_FALSE(is_one({.rank = 3}));
  CHECK_FALSE(is_one({.rank = -1}));
  CHECK_FALSE(is_one({.host = {.group = 0, .peer = 3}}));
  CHECK_FALSE(is_one({.device = {.group = 0, .peer = 3}}));
  CHECK(members_from_text(members_text(std::vector{0, 2}), 3) == std::vector{0, 2});
  CHECK(members_from_text("[0, 3, -1, 1]", 3) == std::vector{0, 1});
  CHECK(members_from_text("x", 3).empty());
}

TEST_CASE("two groups of one number are a bug") {
  StoreServer server("127.0.0.1", 0);
  StoreClient store({.port = server.port()});
  RankWatch watch(store, {.rank = 1, .size = 4});
  const std::vector<int> pair{0, 1};
  watch.joined(1, pair);
  watch.joined(RankWatch::kFirstDeviceGroup, pair);
  for (const int group : {0, 1, RankWatch::kFirstDeviceGroup}) {
    CHECK_THROWS_WITH(watch.joined(group, pair), Contains("two groups with the number "));
  }
  watch.finish();
}

TEST_CASE("a position survives its text, and rubbish is none") {
  WatchPosition position;
  position.heartbeat = 3;
  position.name = "rank \"2\"";
  position.step = position.steps_done = 7;
  position.busy_us = 12;
  position.issued = {{0, 4}, {1, 0}, {2, 9}};
  position.host.group = 2;
  position.host.number = 9;
  position.host.peer = 2;
  position.host.ms = 250;
  position.operation = "all_reduce 9";
  position.device.group = 8;
  position.device.ms = 20;
  position.done = {{8, 3}};
  position.device_operation = "all_gather 4";
  position.device_step = 6;
  const auto back = WatchPosition::from_text(position.to_text(), 3);
  REQUIRE(back);
  CHECK(back->to_text() == position.to_text());
  CHECK_FALSE(WatchPosition::from_text("{}", 3));
  CHECK_FALSE(WatchPosition::from_text("{\"beat\": \"x\"", 3));
  const auto reported =
      RankFailure::from_text(RankFailure{.rank = 12, .stuck = true, .message = "m n"}.to_text());
  REQUIRE(reported);
  CHECK(reported->rank == 12);
  CHECK(reported->stuck);
  CHECK(reported->message == "m n");
  CHECK(reported->where.empty());
  const auto placed = RankFailure::from_text(
      RankFailure{.message = "m", .where = " at step 3, in x", .code = ExitCode::data}.to_text());
  REQUIRE(placed);
  CHECK(placed->message == "m");
  CHECK(placed->where == " at step 3, in x");
  CHECK_FALSE(RankFailure::from_text("x"));
  CHECK_FALSE(RankFailure::from_text("1 2 x"));
}
