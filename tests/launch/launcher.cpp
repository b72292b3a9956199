#include "launch/launcher.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "catch.h"
#include "helper.h"
#include "temporary_folder.h"

using namespace dltrain;
using std::chrono::milliseconds;

namespace {

// A launcher in a process of its own, with its output in pipes.
class Launched {
 public:
  explicit Launched(LaunchOptions options) {
    int out[2], err[2];
    REQUIRE(pipe2(out, O_CLOEXEC) == 0);
    REQUIRE(pipe2(err, O_CLOEXEC) == 0);
    std::fflush(nullptr);  // or both processes write what is buffered
    pid_ = fork();
    if (pid_ == 0) {
      dup2(out[1], STDOUT_FILENO);
      dup2(err[1], STDERR_FILENO);
      int code = 1;
      try {
        code = launch(options, {});
      } catch (const Error& e) {
        code = static_cast<int>(e.code());
        dprintf(STDERR_FILENO, "%s\n", e.what());
      }
      _exit(code);
    }
    close(out[1]);
    close(err[1]);
    out_ = out[0];
    err_ = err[0];
  }
  ~Launched() {
    if (running_) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(out_);
    close(err_);
  }

  void signal(int number) const { kill(pid_, number); }
  // Reads stdout until it holds `count` lines that contain `text`.
  bool wait_for_output(const std::string& text, int count) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (std::chrono::steady_clock::now() < deadline) {
      int found = 0;
      for (size_t at = 0; (at = output.find(text, at)) != output.npos; ++at) ++found;
      if (found >= count) return true;
      pollfd entry{out_, POLLIN, 0};
      if (poll(&entry, 1, 100) > 0 && !read_some(out_, output)) return false;
    }
    return false;
  }
  // Reads both outputs to their end and returns the exit status (or minus the signal).
  int finish() {
    std::thread reader([&] {
      while (read_some(err_, errors)) {
      }
    });
    while (read_some(out_, output)) {
    }
    reader.join();
    int status = 0;
    waitpid(pid_, &status, 0);
    running_ = false;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  std::multiset<std::string> output_lines() const { return lines(output); }
  std::multiset<std::string> error_lines() const { return lines(errors); }
  bool says(const std::string& text) const { return errors.find(text) != errors.npos; }

  std::string output, errors;

 private:
  static bool read_some(int fd, std::string& to) {
    char block[4096];
    const ssize_t got = read(fd, block, sizeof(block));
    if (got > 0) to.append(block, static_cast<size_t>(got));
    return got > 0 || (got < 0 && errno == EINTR);
  }
  static std::multiset<std::string> lines(const std::string& text) {
    std::multiset<std::string> result;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) result.insert(line);
    return result;
  }

  pid_t pid_ = 0;
  bool running_ = true;
  int out_ = -1, err_ = -1;
};

LaunchOptions ranks(int count, const std::string& behaviour) {
  return {.processes = count,
          .variables = {{test::kBehaviour, behaviour}},
          .grace = milliseconds(3000)};
}

// A zombie that nobody has waited for yet has ended, too.
bool is_running(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');
  return name_end != text.npos && text.compare(name_end, 3, ") Z") != 0;
}

// The process numbers that ranks printed as "pid N".
std::vector<pid_t> printed_pids(const std::string& output) {
  std::vector<pid_t> pids;
  for (size_t at = 0; (at = output.find("pid ", at)) != output.npos; ++at) {
    pids.push_back(std::stoi(output.substr(at + 4)));
  }
  return pids;
}

bool all_gone_soon(const std::vector<pid_t>& pids) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  for (const pid_t pid : pids) {
    while (is_running(pid)) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(milliseconds(5));
    }
  }
  return true;
}

}  // namespace

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
        for (const Cpu& cpu : usable.cpus) own.push_back(cpu.number);
      }
      std::string line = fmt::format("{}rank {} threads {} cpus", rank == 0 ? "" : "[rank 1] ",
                                     rank, division.threads);
      // As find_usable_cpus orders them.
      for (const Cpu& cpu : describe_cpus(own, "/").cpus) line += fmt::format(" {}", cpu.number);
      out.insert(line);
    }
    return out;
  };
  LaunchOptions options = ranks(count, "cpus");
  Launched bound(options);
  CHECK(bound.finish() == 0);
  CHECK(bound.output_lines() == lines(divide_cpus(usable, count, CpuBinding::exclusive)));
  options.binding = CpuBinding::none;
  Launched free(options);
  CHECK(free.finish() == 0);
  CHECK(free.output_lines() == lines(divide_cpus(usable, count, CpuBinding::none)));
  options.binding = CpuBinding::exclusive;
  options.variables["OMP_PROC_BIND"] = "close";
  Launched own(options);
  CHECK(own.finish() == 0);
  CHECK(own.output_lines() == lines(divide_cpus(usable, count, CpuBinding::none)));
}

TEST_CASE("ranks meet through the launcher's store") {
  Launched launched(ranks(3, "meet"));
  CHECK(launched.finish() == 0);
  INFO(launched.errors);
  CHECK(launched.output_lines() ==
        std::multiset<std::string>{"sum 6", "[rank 1] sum 6", "[rank 2] sum 6"});
}

TEST_CASE("a failing rank is named, and its code returned; lines right above are not repeated") {
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

TEST_CASE("an early stop passes through without a complaint") {
  Launched launched(ranks(2, "stopped"));
  CHECK(launched.finish() == 75);
  CHECK(launched.errors.empty());
}

TEST_CASE("signals go on to every rank") {
  Launched launched(ranks(3, "signals"));
  REQUIRE(launched.wait_for_output("ready", 3));
  launched.signal(SIGUSR1);
  REQUIRE(launched.wait_for_output("got USR1", 3));
  const int signal = GENERATE(SIGINT, SIGTERM);
  launched.signal(signal);
  CHECK(launched.finish() == 75);
  const std::string text = signal == SIGINT ? "got INT" : "got TERM";
  CHECK(launched.output_lines().count(text) == 1);
  CHECK(launched.output_lines().count("[rank 2] " + text) == 1);
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

TEST_CASE("no rank outlives a launcher that is killed") {
  Launched launched(ranks(3, "stay"));
  REQUIRE(launched.wait_for_output("pid ", 3));
  const auto pids = printed_pids(launched.output);
  REQUIRE(pids.size() == 3);
  launched.signal(SIGKILL);
  CHECK(all_gone_soon(pids));
  CHECK(launched.finish() == -SIGKILL);
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
  CHECK(launched.says("no restart: 1 of 1 are used up"));
}

TEST_CASE("restarts that bring a run no further end; those that do go on from its checkpoint") {
  LaunchOptions options = ranks(2, "restart 9");
  options.max_restarts = 100;
  Launched stuck(options);
  CHECK(stuck.finish() == 6);
  CHECK(stuck.output == "attempt 0\nattempt 1\nattempt 2\nattempt 3\n");
  CHECK(stuck.says("no restart: the last 3 came no further than step 0"));
  options = ranks(2, "restart 6 further");
  options.max_restarts = 100;
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
  CHECK(launched.says("no restart: it would end the same way (code 3)"));
}

TEST_CASE("output goes to files as well, or instead") {
  const TemporaryFolder folder;
  LaunchOptions options = ranks(3, "print");
  options.log_dir = folder.path();
  options.run_id = "files";
  options.tee.of_local[0] = 1;
  options.redirects.of_local[1] = 3;
  Launched launched(options);
  CHECK(launched.finish() == 0);
  CHECK(launched.output.find("[rank 1]") == std::string::npos);
  CHECK(launched.errors.find("[rank 1]") == std::string::npos);
  CHECK(launched.output.find("out 0 threads") != std::string::npos);
  const auto logs = folder.path() / "files" / "attempt_0";
  const auto content = [&](const char* name) {
    std::ifstream file(logs / name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  CHECK(content("0/stdout.log").starts_with("out 0 threads "));
  CHECK(content("1/stdout.log").starts_with("out 1 threads "));
  CHECK(content("1/stderr.log") == "err 1 of 3 local 1 of 3\n");
  CHECK_FALSE(std::filesystem::exists(logs / "2"));
}

TEST_CASE("two launchers are two nodes, in the order of their ranks or of coming") {
  const bool ranked = GENERATE(true, false);
  LaunchOptions options = ranks(2, "meet");
  options.min_nodes = options.max_nodes = 2;
  options.address = "127.0.0.1";
  options.port = test::free_port();
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
  LaunchOptions options = ranks(1, "restart 1");
  options.min_nodes = options.max_nodes = 2;
  options.address = "127.0.0.1";
  options.port = test::free_port();
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

TEST_CASE("a launcher that is killed ends the other one's ranks") {
  const bool leader = GENERATE(true, false);
  LaunchOptions options = ranks(2, "stay");
  options.min_nodes = options.max_nodes = 2;
  options.address = "127.0.0.1";
  options.port = test::free_port();
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
  LaunchOptions options = ranks(1, "stay");
  options.min_nodes = 1;
  options.max_nodes = 2;
  options.address = "127.0.0.1";
  options.port = test::free_port();
  options.last_call = milliseconds(1500);
  options.max_restarts = 1;
  Launched first(options);
  std::this_thread::sleep_for(milliseconds(300));  // so that it is the one that leads
  Launched second(options);
  REQUIRE(second.wait_for_output("pid ", 1));
  second.signal(SIGKILL);
  REQUIRE(first.wait_for_output("pid ", 2));
  first.signal(SIGTERM);
  CHECK(first.finish() == 6);  // its rank knows no better than to die of it
  INFO(first.errors);
  CHECK(first.says("the launcher on "));
  CHECK(first.says("dltrain: restart 1 of 1\n"));
}

TEST_CASE("as many nodes run as have come in time") {
  LaunchOptions options = ranks(1, "meet");
  options.min_nodes = 1;
  options.max_nodes = 3;
  options.address = "127.0.0.1";
  options.port = test::free_port();
  options.last_call = milliseconds(1500);
  Launched first(options), second(options);
  CHECK(first.finish() == 0);
  CHECK(second.finish() == 0);
  INFO(first.errors << second.errors);
  CHECK(first.output.find("sum 3") != std::string::npos);
  CHECK(second.output.find("sum 3") != std::string::npos);
}

TEST_CASE("a node that does not come is one sentence and code 6") {
  LaunchOptions options = ranks(1, "meet");
  options.min_nodes = options.max_nodes = 2;
  options.address = "127.0.0.1";
  options.port = test::free_port();
  options.join_timeout = milliseconds(300);
  options.node_rank = GENERATE(0, 1);
  Launched launched(options);
  CHECK(launched.finish() == 6);
  INFO(launched.errors);
  CHECK(std::count(launched.errors.begin(), launched.errors.end(), '\n') == 1);
  CHECK(launched.says(options.node_rank == 0 ? "only 1 of 2 nodes came to 127.0.0.1:"
                                             : "cannot reach the store at 127.0.0.1:"));
}

TEST_CASE("a name that does not resolve yet is waited for, and told") {
  LaunchOptions options = ranks(1, "stay");
  options.min_nodes = options.max_nodes = 2;
  options.address = "dltrain-test.invalid";
  options.port = test::free_port();
  options.join_timeout = milliseconds(2700);
  Launched launched(options);
  CHECK(launched.finish() == 6);
  INFO(launched.errors);
  CHECK(launched.says("waiting for the name 'dltrain-test.invalid': "));
  CHECK(launched.says("dltrain-test.invalid"));
}

TEST_CASE("a launcher with another secret is refused") {
  LaunchOptions options = ranks(1, "meet");
  options.min_nodes = options.max_nodes = 2;
  options.address = "127.0.0.1";
  options.port = test::free_port();
  options.join_timeout = milliseconds(2000);
  options.secret = "sesame";
  options.node_rank = 0;
  Launched first(options);
  options.secret = "guess";
  options.node_rank = 1;
  Launched second(options);
  CHECK(second.finish() == 6);
  CHECK(second.says("refused this rank's secret"));
  CHECK(first.finish() == 6);
}

TEST_CASE("launchers of two runs do not meet at one endpoint") {
  LaunchOptions options = ranks(1, "meet");
  options.min_nodes = options.max_nodes = 2;
  options.address = "127.0.0.1";
  options.port = test::free_port();
  options.join_timeout = milliseconds(4000);
  options.run_id = "one";
  options.node_rank = 0;
  Launched first(options);
  options.run_id = "two";
  options.node_rank = 1;
  Launched second(options);
  CHECK(second.finish() == 6);
  CHECK(second.says("is that of another run than 'two' (--rdzv-id)"));
  CHECK(first.finish() == 6);
}

TEST_CASE("two nodes of the same number are told so") {
  LaunchOptions options = ranks(1, "meet");
  options.min_nodes = options.max_nodes = 3;
  options.address = "127.0.0.1";
  options.port = test::free_port();
  options.node_rank = 0;
  Launched first(options);
  options.node_rank = 1;
  Launched second(options), third(options);
  for (Launched* launched : {&first, &second, &third}) {
    CHECK(launched->finish() == 2);
    CHECK(launched->says("contradictory --node-rank: 1 where 2 was expected, of 3 nodes"));
  }
}

TEST_CASE("an interruption ends two nodes with one code, and nothing is restarted") {
  LaunchOptions options = ranks(1, "signals");
  options.min_nodes = options.max_nodes = 2;
  options.address = "127.0.0.1";
  options.port = test::free_port();
  options.max_restarts = 3;
  Launched first(options), second(options);
  REQUIRE(first.wait_for_output("ready", 1));
  REQUIRE(second.wait_for_output("ready", 1));
  first.signal(SIGTERM);
  second.signal(SIGTERM);
  CHECK(first.finish() == 75);
  CHECK(second.finish() == 75);
  CHECK(first.errors.empty());
}
