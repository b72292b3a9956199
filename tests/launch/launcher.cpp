#include "launch/launcher.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "comm/store.h"
#include "launch/cpus.h"
#include "launched.h"
#include "temporary_folder.h"

using namespace dltrain;
using namespace dltrain::test;

TEST_CASE("ranks get their variables and their lines a prefix") {
  LaunchOptions options = ranks(3, "print");
  options.variables.emplace("OMP_NUM_THREADS", "7");
  Launched launched(options);
  CHECK(launched.finish() == 0);
  CHECK(launched.output_lines() ==
        std::multiset<std::string>{"out 0 threads 7", "no newline", "[rank 1] out 1 threads 7",
                                   "[rank 1] no newline", "[rank 2] out 2 threads 7",
                                   "[rank 2] no newline"});
  CHECK(launched.error_lines() == std::multiset<std::string>{"err 0 of 3 local 0 of 3",
                                                             "[rank 1] err 1 of 3 local 1 of 3",
                                                             "[rank 2] err 2 of 3 local 2 of 3"});
}

TEST_CASE("the cores are shared among the ranks unless the user says otherwise") {
  unsetenv("OMP_NUM_THREADS");
  Launched many(ranks(64, "print"));
  CHECK(many.finish() == 0);
  CHECK(many.output_lines().count("out 0 threads 1") == 1);
}

TEST_CASE("each rank runs on its share of the CPUs unless the user says otherwise") {
  unsetenv("OMP_NUM_THREADS");
  const UsableCpus usable = find_usable_cpus();
  const int count = std::min<int>(2, static_cast<int>(usable.cpus.size()));
  const auto lines = [&](const CpuDivision& division) {
    std::multiset<std::string> out;
    for (int rank = 0; rank < count; ++rank) {
      std::vector<int> own = division.ranks[static_cast<size_t>(rank)];
      if (own.empty()) {
        own = usable.cpus;
      }
      std::string line = fmt::format("{}rank {} threads {} cpus", rank == 0 ? "" : "[rank 1] ",
                                     rank, division.threads);
      // As find_usable_cpus orders them.
      for (const int cpu : describe_cpus(own, "/").cpus) line += fmt::format(" {}", cpu);
      out.insert(line);
    }
    return out;
  };
  LaunchOptions options = ranks(count, "cpus");
  Launched bound(options);
  CHECK(bound.finish() == 0);
  CHECK(bound.output_lines() == lines(divide_cpus(usable, count)));
  options.bind_cpus = false;
  Launched free(options);
  CHECK(free.finish() == 0);
  CHECK(free.output_lines() == lines(divide_cpus(usable, count, false)));
  options.bind_cpus = true;
  options.variables["OMP_PROC_BIND"] = "false";  // else OpenMP binds the rank itself
  Launched own(options);
  CHECK(own.finish() == 0);
  CHECK(own.output_lines() == lines(divide_cpus(usable, count, false)));
}

TEST_CASE("ranks meet through the launcher's store") {
  Launched launched(ranks(3, "meet"));
  CHECK(launched.finish() == 0);
  INFO(launched.errors);
  CHECK(launched.output_lines() ==
        std::multiset<std::string>{"sum 6", "[rank 1] sum 6", "[rank 2] sum 6"});
}

TEST_CASE(
    "a failing rank is named, and its code returned, and lines right above are not repeated") {
  Launched launched(ranks(3, "fail"));
  CHECK(launched.finish() == 3);
  CHECK(launched.says("[rank 1] line 29\n"));
  CHECK(launched.says(") failed with exit code 3\n"));
  CHECK_FALSE(launched.says("the last lines"));
}

TEST_CASE("the last lines of a failing rank are repeated when another rank spoke after it") {
  Launched launched(ranks(3, "fail-before-another-speaks"));
  CHECK(launched.finish() == 3);
  CHECK(launched.says("dltrain: rank 1 (process "));
  CHECK(launched.says(") failed with exit code 3\n"));
  CHECK(launched.says("dltrain: the last lines of rank 1:\n    line 20\n"));
  CHECK(launched.says("    line 29\n"));
  CHECK_FALSE(launched.says("    line 19\n"));
  CHECK(all_gone_soon(printed_pids(launched.output)));
}

TEST_CASE("a killed rank gives code 6 and the signal's name") {
  Launched launched(ranks(2, "kill"));
  CHECK(launched.finish() == 6);
  CHECK(launched.says("rank 1 (process "));
  CHECK(launched.says("was killed by signal 9 (SIGKILL"));
}

TEST_CASE("the cause is blamed, not the rank that noticed it first") {
  Launched launched(ranks(3, "cascade"));
  CHECK(launched.finish() == 4);
  CHECK(launched.says("rank 1 (process "));
  CHECK_FALSE(launched.says("rank 0 (process "));
}

TEST_CASE("ranks that lose a killed one end, and the killed one is blamed") {
  const auto begin = std::chrono::steady_clock::now();
  Launched launched(ranks(3, "meet and die"));
  CHECK(launched.finish() == 6);
  INFO(launched.errors);
  CHECK(launched.says("dltrain: rank 1 (process "));
  CHECK(std::chrono::steady_clock::now() - begin < milliseconds(8000));
}

TEST_CASE("ranks that ignore the request to stop are killed after the grace time") {
  LaunchOptions options = ranks(3, "stubborn");
  options.grace = milliseconds(200);
  const auto begin = std::chrono::steady_clock::now();
  Launched launched(options);
  CHECK(launched.finish() == 5);
  CHECK(std::chrono::steady_clock::now() - begin < milliseconds(5000));
  CHECK(launched.says("killing the ranks that did not end within 200 ms"));
  CHECK(all_gone_soon(printed_pids(launched.output)));
}

TEST_CASE("an early stop that no rank tells is one sentence of the launcher") {
  Launched launched(ranks(2, "stopped"));
  CHECK(launched.finish() == 75);
  CHECK(launched.error_lines().size() == 1);
  CHECK(launched.says("dltrain: rank "));
  CHECK(launched.says(" was stopped before the first step\n"));
}

TEST_CASE("an early stop that rank 0 has told passes through without a complaint") {
  Launched launched(ranks(GENERATE(1, 2), "stopped and told"));
  CHECK(launched.finish() == 75);
  CHECK(launched.errors.empty());
}

TEST_CASE("signals go on to every rank") {
  Launched launched(ranks(3, "signals"));
  REQUIRE(launched.wait_for_output("ready", 3));
  launched.signal(SIGUSR1);
  REQUIRE(launched.wait_for_output("got USR1", 3));
  const int signal = GENERATE(SIGINT, SIGTERM, SIGHUP);
  launched.signal(signal);
  CHECK(launched.finish() == 75);
  const std::string text = signal == SIGINT ? "got INT" : signal == SIGHUP ? "got HUP" : "got TERM";
  CHECK(launched.output_lines().count(text) == 1);
  CHECK(launched.output_lines().count("[rank 2] " + text) == 1);
}

TEST_CASE("a signal does not kill ranks that are still starting") {
  Launched launched(ranks(3, "starts slowly"));
  REQUIRE(launched.wait_for_output("started", 3));
  launched.signal(SIGTERM);
  CHECK(launched.finish() == 75);
  CHECK(launched.errors == "dltrain: stopped by signal 15 (SIGTERM) before the first step\n");
  CHECK(launched.output_lines().count("[rank 2] got TERM") == 1);
}

TEST_CASE("ranks that die of the signal they were passed have stopped, not failed") {
  LaunchOptions options = ranks(2, "stay");
  options.max_restarts = 3;
  Launched launched(options);
  REQUIRE(launched.wait_for_output("pid ", 2));
  launched.signal(SIGTERM);
  CHECK(launched.finish() == 75);
  CHECK(launched.errors == "dltrain: stopped by signal 15 (SIGTERM) before the first step\n");
}

TEST_CASE("ranks that are stopped between fork and exec keep the launcher from nothing") {
  Launched launched(ranks(2, "starts slowly"),
                    [] { pthread_atfork(nullptr, nullptr, [] { raise(SIGSTOP); }); });
  REQUIRE(count_stopped_children(launched.pid(), 2));
  launched.signal(SIGTERM);
  CHECK(launched.finish() == 75);
  CHECK(launched.errors == "dltrain: stopped by signal 15 (SIGTERM) before the first step\n");
}

TEST_CASE("a launcher whose output nobody reads still ends on a signal") {
  Launched launched(ranks(2, "chatter"));
  REQUIRE(launched.wait_for_output("chatter", 2));
  std::this_thread::sleep_for(milliseconds(300));  // the pipe fills
  launched.signal(SIGTERM);
  CHECK(launched.ends_unread());
  CHECK(launched.finish() == 75);
}

TEST_CASE("SIGHUP that is ignored, as under nohup, reaches no rank") {
  std::signal(SIGHUP, SIG_IGN);
  Launched launched(ranks(2, "signals"));
  std::signal(SIGHUP, SIG_DFL);
  REQUIRE(launched.wait_for_output("ready", 2));
  launched.signal(SIGHUP);
  launched.signal(SIGUSR1);
  REQUIRE(launched.wait_for_output("got USR1", 2));
  CHECK(launched.output.find("got HUP") == std::string::npos);
  launched.signal(SIGTERM);
  CHECK(launched.finish() == 75);
}

TEST_CASE("a third interruption kills ranks that do not listen") {
  Launched launched(ranks(2, "deaf"));
  REQUIRE(launched.wait_for_output("pid ", 2));
  const auto pids = printed_pids(launched.output);
  for (int i = 0; i < 3; ++i) {
    launched.signal(SIGTERM);
    std::this_thread::sleep_for(milliseconds(100));
  }
  CHECK(launched.finish() == 6);
  CHECK(launched.says("interrupted three times"));
  CHECK(all_gone_soon(pids));
}

TEST_CASE("a rank that others report as stuck is ended soon, however rarely the launcher looks") {
  LaunchOptions options = ranks(2, "accuse");
  options.monitor_interval = milliseconds(20'000);
  options.cause_window = options.grace = milliseconds(60'000);
  Launched launched(options);
  REQUIRE(launched.wait_for_output("ready", 2));
  const auto begin = std::chrono::steady_clock::now();
  launched.signal(SIGUSR1);
  CHECK(launched.finish() == 6);
  CHECK(launched.says("dltrain: rank 1 hangs\n"));
  CHECK(std::chrono::steady_clock::now() - begin < milliseconds(10'000));
}

TEST_CASE("no rank outlives a launcher that is killed") {
  Launched launched(ranks(3, "stay"));
  REQUIRE(launched.wait_for_output("pid ", 3));
  const auto pids = printed_pids(launched.output);
  REQUIRE(pids.size() == 3);
  launched.signal(SIGKILL);
  CHECK(all_gone_soon(pids));
  CHECK(launched.finish() == -SIGKILL);
}

TEST_CASE("ranks that lose the store because their launcher is stopped end") {
  Launched launched(ranks(3, "watch"));
  REQUIRE(launched.wait_for_output("sum", 3));
  launched.signal(SIGSTOP);
  std::this_thread::sleep_for(milliseconds(2500));
  launched.signal(SIGCONT);
  CHECK(launched.finish() == 6);
  INFO(launched.errors);
  CHECK(launched.says("dltrain: rank "));
}

TEST_CASE("a launcher that was stopped for a moment reports the verdict of its ranks") {
  LaunchOptions options = ranks(3, "watch and fail");
  Launched launched(options);
  REQUIRE(launched.wait_for_output("reported", 1));
  launched.signal(SIGSTOP);
  std::this_thread::sleep_for(milliseconds(700));
  launched.signal(SIGCONT);
  CHECK(launched.finish() == 6);
  INFO(launched.errors);
  CHECK(launched.says("dltrain: rank 1 (process "));
  CHECK(launched.says(") failed: out of luck\n"));
}

TEST_CASE("a rank that fails is blamed and tells its error once, however long it takes to end") {
  LaunchOptions options = ranks(3, "watch, fail and linger");
  options.max_restarts = 1;
  Launched launched(options);
  CHECK(launched.finish() == static_cast<int>(ExitCode::data));
  INFO(launched.errors);
  CHECK(launched.says("[rank 1] out of luck\ndltrain: rank 1 (process "));
  CHECK(launched.says(") failed with exit code 3\n"));
  CHECK_FALSE(launched.says("failed: out of luck"));
  CHECK(launched.says("no restart: it would fail in the same way (exit code 3)\n"));
}

TEST_CASE("the last lines of a failing rank that went to a file alone are repeated") {
  const TemporaryFolder folder;
  LaunchOptions options = ranks(3, "fail");
  options.log_dir = folder.path();
  options.redirects = 2;
  Launched launched(options);
  CHECK(launched.finish() == 3);
  CHECK_FALSE(launched.says("[rank 1] line 29\n"));
  CHECK(launched.says(") failed with exit code 3\ndltrain: the last lines of rank 1:\n"));
  CHECK(launched.says("    line 29\n"));
}

TEST_CASE("the store answers while the launcher cannot write that it has refused somebody") {
  LaunchOptions options = ranks(1, "stay");
  options.address = "127.0.0.1";
  options.port = test::free_port();
  options.secret = "sesame";
  options.min_nodes = options.max_nodes = 2;
  int full[2];
  REQUIRE(pipe(full) == 0);
  fcntl(full[1], F_SETFL, O_NONBLOCK);
  while (write(full[1], "x", 1) == 1) {
  }
  fcntl(full[1], F_SETFL, 0);
  const pid_t leader = fork();
  if (leader == 0) {
    dup2(full[1], STDERR_FILENO);
    launch(options, {});
    _exit(0);
  }
  StoreClient client({.port = options.port, .secret = "sesame"});
  CHECK_THROWS_AS(StoreClient({.port = options.port, .secret = "guess"}), Error);
  std::this_thread::sleep_for(milliseconds(300));  // the leader waits for its stderr now
  client.set("key", "value");
  CHECK(client.get("key", milliseconds(1000)) == "value");
  kill(leader, SIGKILL);
  waitpid(leader, nullptr, 0);
  for (const int fd : full) close(fd);
}

TEST_CASE("what a rank leaves behind in its group is killed with it") {
  const auto begin = std::chrono::steady_clock::now();
  Launched launched(ranks(1, "grandchild"));
  CHECK(launched.finish() == 0);
  CHECK(std::chrono::steady_clock::now() - begin < milliseconds(5000));
  const auto pids = printed_pids(launched.output);
  REQUIRE(pids.size() == 1);
  CHECK(all_gone_soon(pids));
}

TEST_CASE("an executable that does not exist is one clear error") {
  LaunchOptions options = ranks(2, "print");
  options.executable = "/no/such/program";
  Launched launched(options);
  CHECK(launched.finish() == 2);
  CHECK(launched.says("cannot start '/no/such/program': No such file or directory"));
}

TEST_CASE("an impossible number of processes is refused") {
  Launched launched(ranks(0, "print"));
  CHECK(launched.finish() == 2);
}

TEST_CASE("all ranks are restarted after a failure, as often as allowed") {
  LaunchOptions options = ranks(2, "restart 2");
  options.max_restarts = 2;
  Launched launched(options);
  CHECK(launched.finish() == 0);
  CHECK(launched.output == "attempt 0\nattempt 1\nattempt 2\n");
  CHECK(launched.says("dltrain: restart 1 of 2\n"));
  CHECK(launched.says("dltrain: restart 2 of 2\n"));
}

TEST_CASE("when the restarts are used up the failure counts") {
  LaunchOptions options = ranks(2, "restart 2");
  options.max_restarts = 1;
  Launched launched(options);
  CHECK(launched.finish() == 6);
  CHECK(launched.output == "attempt 0\nattempt 1\n");
  CHECK(launched.says("no restart: 1 of 1 restarts are used up"));
}

TEST_CASE("restarts that bring a run no further end, and those that do go on from its checkpoint") {
  LaunchOptions options = ranks(2, "restart 9");
  options.max_restarts = 100;
  Launched stuck(options);
  CHECK(stuck.finish() == 6);
  CHECK(stuck.output == "attempt 0\nattempt 1\nattempt 2\nattempt 3\n");
  CHECK(stuck.says("no restart: the last 3 restarts made no progress after step 0"));
  options = ranks(2, "restart 6 further");
  options.max_restarts = 100;
  options.run.saved_step = [step = 0]() mutable { return step += 10; };
  Launched further(options);
  CHECK(further.finish() == 0);
  CHECK(further.output_lines().count("attempt 0") == 1);
  CHECK(further.output_lines().count("attempt 6 goes on") == 1);
  CHECK(further.says("dltrain: restart 6 of 100 from the checkpoint of step 60\n"));
}

TEST_CASE("a failure that a restart cannot change is none") {
  LaunchOptions options = ranks(2, "restart 9 code 3");
  options.max_restarts = 5;
  Launched launched(options);
  CHECK(launched.finish() == 3);
  CHECK(launched.output == "attempt 0\n");
  CHECK(launched.says("no restart: it would fail in the same way (exit code 3)"));
}

TEST_CASE("output goes to files as well, or instead") {
  const TemporaryFolder folder;
  LaunchOptions options = ranks(2, "print");
  options.log_dir = folder.path();
  options.run_id = "files";
  options.tee = 1;
  options.redirects = 2;
  Launched launched(options);
  CHECK(launched.finish() == 0);
  CHECK(launched.output.find("[rank 1] out 1 threads") != std::string::npos);
  CHECK(launched.errors.find("err 1 of 2") == std::string::npos);
  std::filesystem::path run;  // named by the run's id and something random
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) run = entry.path();
  CHECK(run.filename().string().starts_with("files_"));
  CHECK(launched.says("dltrain: the output of the ranks is written to " + run.string() + "\n"));
  const auto logs = run / "attempt_0";
  const auto content = [&](const char* name) {
    std::ifstream file(logs / name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  CHECK(content("0/stdout.log").starts_with("out 0 threads "));
  CHECK(content("1/stdout.log").starts_with("out 1 threads "));
  CHECK(content("1/stderr.log") == "err 1 of 2 local 1 of 2\n");
  // A second run in the same folder leaves the first one's files alone.
  Launched again(options);
  CHECK(again.finish() == 0);
  CHECK(content("1/stderr.log") == "err 1 of 2 local 1 of 2\n");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 2);
}
