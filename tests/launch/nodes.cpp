// Several launchers are the nodes of one run.
#include <algorithm>

#include "comm/socket.h"
#include "launch/rendezvous.h"
#include "launched.h"

using namespace dltrain;
using namespace dltrain::test;

// Of so many nodes that meet on this machine.
LaunchOptions node(int least, int most, LaunchOptions options) {
  options.min_nodes = least;
  options.max_nodes = most;
  options.address = "127.0.0.1";
  options.port = test::free_port();
  return options;
}
LaunchOptions node(int nodes, LaunchOptions options) {
  return node(nodes, nodes, std::move(options));
}

// Until so many launchers have come to an attempt; the first one leads.
void wait_for_launchers(const LaunchOptions& options, int count, int attempt = 0) {
  StoreClient store({.port = options.port, .prefix = options.run_id + ".launch/"});
  const std::string key = std::to_string(attempt) + "/join/";
  const auto come = [&] { return static_cast<int>(store.list(key).size()); };
  const auto end = Clock::now() + milliseconds(30'000);
  while (come() < count && Clock::now() < end) std::this_thread::sleep_for(milliseconds(2));
  REQUIRE(come() >= count);
}

TEST_CASE("two launchers are two nodes, in the order of their ranks or of the hosts") {
  const bool ranked = GENERATE(true, false);
  LaunchOptions options = node(2, ranks(2, "meet"));
  options.join_timeout = milliseconds(10'000);
  if (ranked) options.node_rank = 1;
  Launched second(options);
  if (ranked) options.node_rank = 0;
  options.processes = 1;
  Launched first(options);
  CHECK(first.finish() == 0);
  CHECK(second.finish() == 0);
  INFO(first.errors << second.errors);
  std::multiset<std::string> lines = first.output_lines();
  lines.merge(second.output_lines());
  CHECK(lines == std::multiset<std::string>{"sum 6", "[rank 1] sum 6", "[rank 2] sum 6"});
  if (ranked) CHECK(first.output == "sum 6\n");
}

TEST_CASE("a rank that is killed on one node ends or restarts both") {
  const int restarts = GENERATE(0, 1);
  LaunchOptions options = node(2, ranks(1, "restart 1"));
  options.join_timeout = milliseconds(10'000);
  options.max_restarts = restarts;
  options.node_rank = 0;
  Launched first(options);
  options.node_rank = 1;
  Launched second(options);
  const int code = restarts == 0 ? 6 : 0;
  CHECK(first.finish() == code);
  CHECK(second.finish() == code);
  for (const Launched* launched : {&first, &second}) {
    INFO(launched->errors);
    CHECK(launched->says("dltrain: rank 1 (process "));
    CHECK(launched->says("was killed by signal 9 (SIGKILL"));
  }
  CHECK(first.output == (restarts == 0 ? "attempt 0\n" : "attempt 0\nattempt 1\n"));
}

TEST_CASE("a node whose ranks end first waits for the others, however rarely it looks") {
  LaunchOptions options = node(2, ranks(1, "rank 0 ends last"));
  options.monitor_interval = milliseconds(5000);
  options.node_rank = 0;
  Launched first(options);
  options.node_rank = 1;
  Launched second(options);
  CHECK(first.finish() == 0);
  CHECK(second.finish() == 0);
  INFO(first.errors << second.errors);
  CHECK((first.errors + second.errors).empty());
}

TEST_CASE("a leader that has gone before the farewell of another node is no loss") {
  const auto never = [] { return false; };
  LaunchOptions options = node(2, ranks(1, "meet"));
  options.node_rank = 0;
  auto leader = std::make_unique<Rendezvous>(options, "", never);
  LaunchOptions other = options;
  other.node_rank = 1;
  Rendezvous follower(other, "", never);
  std::thread meeting([&] { leader->join_round(false); });
  const auto round = follower.join_round(false);
  meeting.join();
  REQUIRE(round);
  leader.reset();
  CHECK_NOTHROW(follower.leave());
}

TEST_CASE("both nodes learn soon why a rank failed, by its last lines") {
  LaunchOptions options = node(2, ranks(2, "fail"));
  options.monitor_interval = milliseconds(20'000);
  const auto begin = std::chrono::steady_clock::now();
  options.node_rank = 0;
  Launched first(options);
  options.node_rank = 1;
  Launched second(options);
  // Rank 1, of the first node, fails.
  CHECK(first.finish() == 3);
  CHECK(second.finish() == 3);
  CHECK(std::chrono::steady_clock::now() - begin < milliseconds(15'000));
  INFO(second.errors);
  CHECK(second.says("dltrain: rank 1 (process "));
  CHECK(
      second.says(") failed with exit code 3\ndltrain: the last lines of rank 1:\n    line 20\n"));
  CHECK(second.says("    line 29\n"));
  CHECK_FALSE(first.says("the last lines"));  // they stand right above
}

TEST_CASE("launchers that were told different things do not begin") {
  const bool nodes = GENERATE(true, false);
  LaunchOptions options = node(2, ranks(1, "meet"));
  Launched first(options);
  wait_for_launchers(options, 1);
  if (nodes) options.min_nodes = options.max_nodes = 3;
  if (!nodes) options.max_restarts = 4;
  Launched second(options);
  for (Launched* launched : {&first, &second}) {
    CHECK(launched->finish() == 2);
    INFO(launched->errors);
    CHECK(launched->says(nodes ? "the launchers were given different --nnodes: 2 on "
                               : "the launchers were given different --max-restarts: 0 on "));
    CHECK(launched->says(nodes ? " and 3 on " : " and 4 on "));
    CHECK(std::count(launched->errors.begin(), launched->errors.end(), '\n') == 1);
  }
}

TEST_CASE("node 0 serves the store, so the address is one of its host") {
  LaunchOptions options = node(2, ranks(1, "meet"));
  options.node_rank = 0;
  options.address = "192.0.2.1";  // nobody's
  Launched nobody(options);
  CHECK(nobody.finish() == 2);
  CHECK(nobody.says("node 0 serves the store, but 192.0.2.1 is no address of this host"));
}

TEST_CASE("a launcher that is killed ends the other one's ranks") {
  const bool leader = GENERATE(true, false);
  LaunchOptions options = node(2, ranks(2, "stay"));
  options.node_rank = 0;
  Launched first(options);
  options.node_rank = 1;
  Launched second(options);
  REQUIRE(first.wait_for_output("pid ", 2));
  REQUIRE(second.wait_for_output("pid ", 2));
  Launched &killed = leader ? first : second, &other = leader ? second : first;
  killed.signal(SIGKILL);
  CHECK(other.finish() == 6);
  INFO(other.errors);
  CHECK(other.says(leader ? "closed the connection" : "the launcher on "));
  CHECK(all_gone_soon(printed_pids(first.output + second.output)));
}

TEST_CASE("the nodes that are left go on where fewer are allowed") {
  LaunchOptions options = node(1, 2, ranks(1, "stay"));
  options.last_call = milliseconds(1500);
  options.max_restarts = 1;
  Launched first(options);
  wait_for_launchers(options, 1);
  Launched second(options);
  REQUIRE(second.wait_for_output("pid ", 1));
  second.signal(SIGKILL);
  REQUIRE(first.wait_for_output("pid ", 2));
  first.signal(SIGTERM);
  CHECK(first.finish() == 75);
  INFO(first.errors);
  CHECK(first.says("the launcher on "));
  CHECK(first.says("dltrain: restart 1 of 1\n"));
}

TEST_CASE("a newcomer between two attempts that was told other things is left out") {
  LaunchOptions options = node(1, 3, ranks(1, "stay"));
  options.last_call = milliseconds(2500);
  options.max_restarts = 1;
  Launched first(options);
  wait_for_launchers(options, 1);
  Launched second(options);
  REQUIRE(second.wait_for_output("pid ", 1));
  second.signal(SIGKILL);
  wait_for_launchers(options, 1, 1);
  options.max_restarts = 4;
  Launched newcomer(options);
  CHECK(newcomer.finish() == 6);
  INFO(newcomer.errors);
  CHECK(newcomer.says("this node came too late, or with other --nnodes or --max-restarts"));
  REQUIRE(first.wait_for_output("pid ", 2));
  first.signal(SIGTERM);
  CHECK(first.finish() == 75);
}

TEST_CASE("as many nodes run as have come in time") {
  LaunchOptions options = node(1, 3, ranks(1, "meet"));
  options.last_call = milliseconds(1500);
  Launched first(options), second(options);
  CHECK(first.finish() == 0);
  CHECK(second.finish() == 0);
  INFO(first.errors << second.errors);
  CHECK(first.output.find("sum 3") != std::string::npos);
  CHECK(second.output.find("sum 3") != std::string::npos);
}

TEST_CASE("a node that does not come is one sentence and code 6") {
  LaunchOptions options = node(2, ranks(1, "meet"));
  options.join_timeout = milliseconds(300);
  options.node_rank = GENERATE(0, 1);
  Launched launched(options);
  CHECK(launched.finish() == 6);
  INFO(launched.errors);
  CHECK(std::count(launched.errors.begin(), launched.errors.end(), '\n') == 1);
  CHECK(launched.says(options.node_rank == 0 ? "only 1 of 2 nodes connected to 127.0.0.1:"
                                             : "cannot reach the store at 127.0.0.1:"));
}

TEST_CASE("a name that does not resolve yet is waited for, and told") {
  LaunchOptions options = node(2, ranks(1, "stay"));
  options.address = "dltrain-test.invalid";
  options.join_timeout = milliseconds(2700);
  Launched launched(options);
  CHECK(launched.finish() == 6);
  INFO(launched.errors);
  CHECK(launched.says("waiting for the name 'dltrain-test.invalid': "));
  CHECK(launched.says("dltrain-test.invalid"));
}

TEST_CASE("a launcher with another secret is refused") {
  LaunchOptions options = node(2, ranks(1, "meet"));
  options.join_timeout = milliseconds(2000);
  options.secret = "sesame";
  options.node_rank = 0;
  Launched first(options);
  options.secret = "guess";
  options.node_rank = 1;
  Launched second(options);
  CHECK(second.finish() == 6);
  CHECK(second.says("refused the secret of this launcher (DLTRAIN_STORE_SECRET)"));
  CHECK(first.finish() == 6);
  INFO(first.errors);
  CHECK(first.says("dltrain: a launcher or rank at 127.0.0.1 was refused at 127.0.0.1:"));
  CHECK(first.says("it has another secret (DLTRAIN_STORE_SECRET)\n"));
  CHECK(std::count(first.errors.begin(), first.errors.end(), '\n') == 2);
}

TEST_CASE("launchers of two runs do not meet at one endpoint") {
  LaunchOptions options = node(2, ranks(1, "meet"));
  options.join_timeout = milliseconds(4000);
  options.run_id = "one";
  options.node_rank = 0;
  Launched first(options);
  options.run_id = "two";
  options.node_rank = 1;
  Launched second(options);
  CHECK(second.finish() == 6);
  CHECK(second.says("belongs to a run other than 'two' (--rdzv-id)"));
  CHECK(first.finish() == 6);
}

TEST_CASE("two nodes of the same number are told so") {
  LaunchOptions options = node(3, ranks(1, "meet"));
  options.node_rank = 0;
  Launched first(options);
  options.node_rank = 1;
  Launched second(options), third(options);
  for (Launched* launched : {&first, &second, &third}) {
    CHECK(launched->finish() == 2);
    CHECK(launched->says("contradictory --node-rank: 1 where 2 was expected, of 3 nodes"));
  }
}

TEST_CASE("a launcher that waits for the leader is interrupted at once") {
  const int number = GENERATE(SIGINT, SIGTERM, SIGHUP);
  LaunchOptions options = node(2, ranks(1, "meet"));
  options.node_rank = 1;
  Launched nobody(options);
  // A leader that takes the connection and says nothing: a host that has just been frozen.
  const FileDescriptor frozen = listen_on("127.0.0.1", 0);
  options.port = bound_port(frozen.get());
  Launched silence(options);
  std::this_thread::sleep_for(milliseconds(300));
  const auto begin = std::chrono::steady_clock::now();
  for (Launched* launched : {&nobody, &silence}) {
    launched->signal(number);
    CHECK(launched->finish() == 75);
    INFO(launched->errors);
    CHECK(launched->says("dltrain: interrupted while "));
    CHECK(launched->says("the store at 127.0.0.1:"));
    CHECK(std::count(launched->errors.begin(), launched->errors.end(), '\n') == 1);
  }
  CHECK(std::chrono::steady_clock::now() - begin < milliseconds(3000));
}

TEST_CASE("a leader that is frozen while the nodes meet does not keep the others from ending") {
  LaunchOptions options = node(3, ranks(1, "meet"));
  options.node_rank = 0;
  Launched leader(options);
  options.node_rank = 1;
  Launched second(options);
  wait_for_launchers(options, 2);
  leader.signal(SIGSTOP);
  std::this_thread::sleep_for(milliseconds(300));
  second.signal(SIGTERM);
  CHECK(second.finish() == 75);
  leader.signal(SIGCONT);
  leader.signal(SIGTERM);
  CHECK(leader.finish() == 75);
}

TEST_CASE("an interruption of the leader ends those that wait with it, with the same code") {
  LaunchOptions options = node(3, ranks(1, "meet"));
  options.join_timeout = milliseconds(20'000);
  options.node_rank = 0;
  Launched leader(options);
  options.node_rank = 1;
  Launched second(options);
  wait_for_launchers(options, 2);
  leader.signal(SIGTERM);
  CHECK(leader.finish() == 75);
  CHECK(second.finish() == 75);
  INFO(second.errors);
  CHECK(second.says("was interrupted"));
}

TEST_CASE("an interruption ends two nodes with one code, and nothing is restarted") {
  LaunchOptions options = node(2, ranks(1, "signals"));
  options.max_restarts = 3;
  Launched first(options), second(options);
  REQUIRE(first.wait_for_output("ready", 1));
  REQUIRE(second.wait_for_output("ready", 1));
  first.signal(SIGTERM);
  second.signal(SIGTERM);
  CHECK(first.finish() == 75);
  CHECK(second.finish() == 75);
  for (const Launched* launched : {&first, &second}) {
    CHECK(launched->errors == "dltrain: stopped by signal 15 (SIGTERM) before the first step\n");
  }
}
