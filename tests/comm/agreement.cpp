// Choices that ranks make together: rank 0's or the first's for all, and how those who wait learn
// that none comes.
#include "comm/agreement.h"

#include <thread>

#include "catch.h"
#include "refusal.h"

using namespace dltrain;
using std::chrono::milliseconds;

namespace {

struct Rank {
  StoreClient store;
  RankAgreement agreement;
  Rank(const StoreServer& server, int rank, milliseconds timeout)
      : store({.port = server.port(), .prefix = "run/"}), agreement(store, rank, timeout) {}
  std::string choose(const std::string& key, const std::string& own) {
    return agreement.choose(key, [&] { return own; });
  }
};

TEST_CASE("what rank 0 chooses is everybody's, whenever they ask") {
  const StoreServer server("127.0.0.1", 0);
  Rank first(server, 0, milliseconds(20'000)), second(server, 1, milliseconds(20'000));
  CHECK(first.choose("a", "of 0") == "of 0");
  CHECK(second.choose("a", "of 1") == "of 0");
  CHECK(first.choose("a", "another") == "of 0");
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(50));
    first.choose("b", "late");
  });
  CHECK(second.choose("b", "of 1") == "late");
  later.join();
}

TEST_CASE("an error of rank 0 ends the waiting of the others at once") {
  const StoreServer server("127.0.0.1", 0);
  Rank first(server, 0, milliseconds(20'000)), second(server, 1, milliseconds(20'000));
  const auto begin = Clock::now();
  bool thrown = false;
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(50));
    try {
      first.agreement.choose("a", []() -> std::string { fail(ExitCode::device, "no such GPU"); });
    } catch (const Error&) {
      thrown = true;  // checks belong to the other thread
    }
  });
  CHECK(refusal_of([&] { second.choose("a", ""); }, ExitCode::rank) ==
        "rank 0 has given up: no such GPU");
  later.join();
  CHECK(thrown);
  CHECK_THROWS_AS(second.choose("b", ""), Error);
  // Those of others are their own.
  second.agreement.abort("of no interest");
  Rank third(server, 2, milliseconds(20'000));
  CHECK(refusal_of([&] { third.choose("c", ""); }, ExitCode::rank) ==
        "rank 0 has given up: no such GPU");
  CHECK(Clock::now() - begin < milliseconds(10'000));
}

TEST_CASE("where ranks ask for different keys, the first that asks for a key chooses") {
  const StoreServer server("127.0.0.1", 0);
  Rank first(server, 0, milliseconds(20'000)), second(server, 1, milliseconds(20'000));
  const auto choose = [](Rank& rank, const std::string& key, const std::string& own) {
    return rank.agreement.choose_as_first(key, [&] { return own; });
  };
  CHECK(choose(second, "a", "of 1") == "of 1");
  CHECK(choose(first, "b", "of 0") == "of 0");
  CHECK(choose(first, "a", "of 0") == "of 1");
  CHECK(choose(second, "b", "of 1") == "of 0");
  CHECK(choose(second, "a", "another") == "of 1");
  // Both at once: one of them chooses.
  std::string other;
  std::thread rival([&] { other = choose(first, "c", "of 0"); });
  const std::string own = choose(second, "c", "of 1");
  rival.join();
  CHECK(own == other);
  // Those who wait learn that the first has failed.
  const auto failing = [&] {
    second.agreement.choose_as_first("d",
                                     []() -> std::string { fail(ExitCode::device, "no GPU"); });
  };
  CHECK(refusal_of(failing, ExitCode::device) == "no GPU");
  CHECK(refusal_of([&] { choose(first, "d", ""); }, ExitCode::rank) ==
        "rank 1 has given up: no GPU");
}

TEST_CASE("the timeout is waited for once, not for every choice") {
  const StoreServer server("127.0.0.1", 0);
  Rank second(server, 1, milliseconds(300));
  const auto begin = Clock::now();
  for (int i = 0; i < 20; ++i) {
    CHECK(refusal_of([&] { second.choose(std::to_string(i), ""); }, ExitCode::rank) ==
          "rank 0 made no choice within 0.3 s");
  }
  CHECK(Clock::now() - begin < milliseconds(5'000));
}

}  // namespace
