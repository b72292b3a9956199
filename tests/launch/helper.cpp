#include "helper.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <unistd.h>

#include "base/error.h"
#include "comm/socket.h"
#include "comm/watch_records.h"
#include "comm/world.h"
#include "launch/cpus.h"

namespace dltrain::test {
namespace {

void print_line(std::FILE* to, const std::string& line) {
  std::fputs((line + "\n").c_str(), to);
  std::fflush(to);
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "(unset)";
}

// A device without functions, since a group over host memory needs none.
class NoDevice : public Device {
 public:
  const DeviceProperties& properties() const override { return properties_; }
  void* allocate(size_t, Memory) override { return nullptr; }
  void free(void*, Memory) override {}
  std::unique_ptr<Stream> make_stream() override { return nullptr; }
  std::unique_ptr<Event> make_event() override { return nullptr; }
  void copy(void*, const void*, size_t, Stream&) override {}
  void zero(void*, size_t, Stream&) override {}
  std::unique_ptr<CapturedGraph> capture(Stream&, const std::function<void()>&) override {
    return nullptr;
  }

 private:
  DeviceProperties properties_;
};

class NoStream : public Stream {
 public:
  void synchronize() override {}
};

// Meets the others through the launcher's store and adds up the ranks, `steps` times.
int meet(int rank, int steps) {
  NoDevice device;
  NoStream stream;
  try {
    World world = join_world(rank_environment(process_environment()), device);
    for (int i = 0; i < steps; ++i) {
      int32_t sum = rank + 1;
      world.collectives->wait(
          world.collectives->all_reduce(&sum, 1, DType::i32, ReduceOp::sum, stream), stream);
      if (i == 0) print_line(stdout, "sum " + std::to_string(sum));
      if (i == 20 && rank == 1 && steps > 21) raise(SIGKILL);
    }
    world.collectives->barrier();
  } catch (const Error& e) {
    print_line(stderr, e.what());
    return static_cast<int>(e.code());
  }
  return 0;
}

// As a rank that is watched, with a timeout of a second, until it is lost. "watch and fail": rank 1
// tells the others that it has failed; "watch, fail and linger": it prints that and ends two
// seconds later.
int watch(bool fails, bool lingers) {
  NoDevice device;
  const World world = join_world(rank_environment(process_environment()), device,
                                 {.timeout = std::chrono::milliseconds(1000),
                                  .watch = {.on_lost = [](const std::string&) { _exit(6); }}});
  print_line(stdout, "sum");
  if (fails && world.environment.rank == 1) {
    world.watch->report("out of luck", lingers ? ExitCode::data : ExitCode::rank);
    print_line(stdout, "reported");
    if (lingers) {
      std::signal(SIGTERM, SIG_IGN);
      sleep(2);
      print_line(stderr, "out of luck");
      return static_cast<int>(ExitCode::data);
    }
  }
  sleep(60);
  return 99;
}

// Returns when all ranks have come here.
void wait_for_all() {
  const RankEnvironment self = rank_environment(process_environment());
  StoreClient store({.port = self.master_port, .secret = self.secret});
  store.set(fmt::format("here/{}", self.rank), "");
  while (std::ssize(store.list("here/")) < self.world_size) usleep(2000);
}

// Rank 0 ends when the launcher of another node has seen that all of its own ranks have ended.
int end_last(int rank) {
  if (rank != 0) return 0;
  const RankEnvironment self = rank_environment(process_environment());
  const std::string run = self.run_id.substr(0, self.run_id.rfind('.'));
  StoreClient store(
      {.port = self.master_port, .secret = self.secret, .prefix = run + ".launch/0/"});
  while (store.list("done/").empty()) usleep(2000);
  return 0;
}

volatile std::sig_atomic_t signalled = 0;

// After SIGUSR1 rank 0 tells that rank 1, which listens to nothing, is stuck.
int accuse(int rank) {
  std::signal(SIGTERM, SIG_IGN);
  std::signal(SIGUSR1, [](int) { signalled = 1; });
  print_line(stdout, "ready");
  while (!signalled) usleep(2000);
  if (rank == 0) {
    const RankEnvironment self = rank_environment(process_environment());
    StoreClient store(
        {.port = self.master_port, .secret = self.secret, .prefix = self.store_prefix()});
    const RankFailure reported{.rank = 1, .stuck = true, .message = "rank 1 hangs"};
    store.put_new(watch_keys::kFailure, reported.to_text());
    return 6;
  }
  for (;;) pause();
}

// Rank 1 fails in the first attempts: "restart 2" by a signal in two, "restart 9 further" after the
// run has begun, "restart 9 code 3" with that code.
int restart(const std::string& behaviour, int rank) {
  const RankEnvironment self = rank_environment(process_environment());
  if (rank == 0) {
    print_line(stdout,
               fmt::format("attempt {}{}", self.restarts, self.run_has_begun ? " goes on" : ""));
  }
  StoreClient store(
      {.port = self.master_port, .secret = self.secret, .prefix = self.store_prefix()});
  if (rank == 0 && behaviour.ends_with("further")) {
    store.set(watch_keys::kBegun, "1");
  }
  store.set(fmt::format("here/{}", self.rank), "");
  while (std::ssize(store.list("here/")) < self.world_size) usleep(2000);
  if (rank != 1 || self.restarts >= behaviour[8] - '0') return 0;
  if (behaviour.ends_with("code 3")) return 3;
  raise(SIGKILL);
  return 0;
}

void on_signal(int signal) {
  const char* text = signal == SIGUSR1  ? "got USR1\n"
                     : signal == SIGINT ? "got INT\n"
                     : signal == SIGHUP ? "got HUP\n"
                                        : "got TERM\n";
  if (write(STDOUT_FILENO, text, std::strlen(text)) < 0 || signal != SIGUSR1) _exit(75);
}

// The launcher holds them back until then.
void release_signals() {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

int behave(const std::string& behaviour, int rank) {
  if (behaviour == "print") {
    print_line(stdout, "out " + std::to_string(rank) + " threads " + variable("OMP_NUM_THREADS"));
    print_line(stderr, "err " + std::to_string(rank) + " of " + variable("WORLD_SIZE") + " local " +
                           variable("LOCAL_RANK") + " of " + variable("LOCAL_WORLD_SIZE"));
    std::fputs("no newline", stdout);
    std::fflush(stdout);
    return 0;
  }
  if (behaviour == "cpus") {
    std::string cpus;
    for (const int cpu : find_usable_cpus().cpus) cpus += fmt::format(" {}", cpu);
    print_line(stdout,
               fmt::format("rank {} threads {} cpus{}", rank, variable("OMP_NUM_THREADS"), cpus));
    return 0;
  }
  if (behaviour.starts_with("fail")) {
    // The output of the others and their handling of SIGTERM are set up before rank 1 fails.
    const bool speaks = behaviour == "fail-before-another-speaks" && rank == 0;
    if (speaks) std::signal(SIGTERM, SIG_IGN);
    if (rank != 1) print_line(stdout, "pid " + std::to_string(getpid()));
    wait_for_all();
    if (rank == 1) {
      usleep(100'000);
      for (int i = 0; i < 30; ++i) print_line(stderr, "line " + std::to_string(i));
      return 3;
    }
    if (speaks) {
      usleep(400'000);
      print_line(stderr, "another");
      return 6;
    }
    sleep(60);
    return 0;
  }
  if (behaviour == "cascade") {  // the culprit takes longer to end than the rank that lost it
    if (rank == 0) return 6;
    if (rank == 1) {
      usleep(150'000);
      return 4;
    }
  }
  if (behaviour == "stubborn") {
    std::signal(SIGTERM, SIG_IGN);
    wait_for_all();
    if (rank == 1) return 5;
  }
  if (behaviour == "deaf") std::signal(SIGTERM, SIG_IGN);
  if (behaviour == "kill" && rank == 1) raise(SIGKILL);
  if (behaviour == "stopped") return 75;
  if (behaviour == "stopped and told") {
    const RankEnvironment self = rank_environment(process_environment());
    StoreClient store(
        {.port = self.master_port, .secret = self.secret, .prefix = self.store_prefix()});
    if (rank == 0) store.set(watch_keys::kStopLogged, "1");
    wait_for_all();
    return 75;
  }
  if (behaviour == "chatter") {
    release_signals();
    for (;;) print_line(stdout, "chatter" + std::string(1000, '.'));
  }
  if (behaviour.starts_with("restart")) return restart(behaviour, rank);
  if (behaviour == "signals") {
    // Not a handler: ThreadSanitizer defers signals, and sometimes for ever.
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) sigaddset(&set, signal);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    print_line(stdout, "ready");
    for (int signal = 0;;) {
      if (sigwait(&set, &signal) == 0) on_signal(signal);
    }
  }
  if (behaviour == "starts slowly") {
    print_line(stdout, "started");
    usleep(300'000);
    std::signal(SIGTERM, on_signal);
    release_signals();
    sleep(60);
  }
  if (behaviour == "grandchild" && fork() != 0) {
    usleep(50'000);
    return 0;
  }
  if (behaviour == "rank 0 ends last") return end_last(rank);
  if (behaviour == "accuse") return accuse(rank);
  if (behaviour == "meet") return meet(rank, 1);
  if (behaviour.starts_with("watch")) {
    return watch(behaviour != "watch", behaviour.ends_with("linger"));
  }
  if (behaviour == "meet and die") return meet(rank, 1'000'000);
  // Everybody else stays until stopped.
  print_line(stdout, "pid " + std::to_string(getpid()));
  sleep(60);
  return 99;
}

}  // namespace

int free_port() {
  const FileDescriptor socket = listen_on("127.0.0.1", 0);
  return bound_port(socket.get());
}

namespace {

// Runs before main() and does not come back in a rank.
const bool kIsTest = [] {
  if (const char* behaviour = std::getenv(kBehaviour)) {
    if (std::string(behaviour) != "starts slowly") release_signals();
    _exit(behave(behaviour, std::atoi(variable("RANK").c_str())));
  }
  return true;
}();

}  // namespace
}  // namespace dltrain::test
