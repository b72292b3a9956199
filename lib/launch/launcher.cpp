#include "launch/launcher.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <optional>

#include <poll.h>
#include <sched.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "comm/store.h"
#include "launch/relay.h"
#include "launch/spawn.h"

namespace dltrain {
namespace {

using std::chrono::milliseconds;

constexpr int kForwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
constexpr int kPeerLost = static_cast<int>(ExitCode::rank);
constexpr int kStopped = static_cast<int>(ExitCode::stopped);
// How long output is still read after the last rank has ended, if somebody keeps a pipe open.
constexpr milliseconds kDrainTime{200};

// Signals arrive as bytes on a descriptor while this lives; SIGPIPE is ignored.
class SignalSource {
 public:
  SignalSource() {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : kForwarded) sigaddset(&set, signal);
    sigaddset(&set, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, &set, &mask_before_);
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &ignore, &pipe_before_);
    descriptor_ = FileDescriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    check_internal(static_cast<bool>(descriptor_), "signalfd: {}", std::strerror(errno));
  }
  ~SignalSource() {
    sigaction(SIGPIPE, &pipe_before_, nullptr);
    pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
  }

  int descriptor() const { return descriptor_.get(); }
  // The next signal, 0 when there is none.
  int take() {
    signalfd_siginfo info{};
    return read(descriptor_.get(), &info, sizeof(info)) == sizeof(info)
               ? static_cast<int>(info.ssi_signo)
               : 0;
  }

 private:
  sigset_t mask_before_;
  struct sigaction pipe_before_ {};
  FileDescriptor descriptor_;
};

struct Rank {
  int number = 0;
  pid_t pid = 0;
  bool alive = false;
  int signal = 0;  // that killed it
  int code = 0;
  std::unique_ptr<LineRelay> out, err;  // nullptr where the rank writes to the terminal itself

  bool failed() const { return signal != 0 || code != 0; }
  // Worse causes first: own failures, then lost peers, then an early stop.
  int blame() const {
    if (signal != 0) return 0;
    return code == kPeerLost ? 1 : code == kStopped ? 2 : 0;
  }
};

std::string random_name() {
  std::array<unsigned char, 16> bytes{};
  check_internal(getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
                 "getrandom: {}", std::strerror(errno));
  std::string name;
  for (const unsigned char b : bytes) name += fmt::format("{:02x}", b);
  return name;
}

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

class Launch {
 public:
  Launch(const LaunchOptions& options, const std::vector<std::string>& arguments)
      : options_(options), server_("127.0.0.1", 0, secret_) {
    start_all(arguments);
  }
  // Only reached with living ranks when starting one of them failed.
  ~Launch() {
    for (Rank& r : ranks_) {
      if (!r.alive) continue;
      kill(-r.pid, SIGKILL);
      waitpid(r.pid, nullptr, 0);
    }
  }

  int run();

 private:
  void start_all(const std::vector<std::string>& arguments);
  Environment environment_for(int rank) const;
  bool anyone_alive() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.alive; });
  }
  void turn();
  void handle_signals();
  void reap();
  void ended(Rank& r, const siginfo_t& info);
  void stop_others();
  void signal_all(int signal);
  void pump_all(bool wait, milliseconds timeout);
  milliseconds time_to_deadline() const;
  void report_failure() const;
  void say(const std::string& text) const { write_all(STDERR_FILENO, "dltrain: " + text + "\n"); }

  const LaunchOptions& options_;
  SignalSource signals_;  // before any thread and any child
  std::string secret_ = random_name();
  StoreServer server_;
  std::vector<Rank> ranks_;
  const Rank* cause_ = nullptr;
  const LineRelay* last_speaker_ = nullptr;  // whose lines were passed on last
  bool stopping_ = false;                    // SIGTERM has been sent because of a failure
  bool killed_ = false;
  int interruptions_ = 0;
  std::optional<Clock::time_point> deadline_;  // of the blame window, then of the grace
};

void Launch::start_all(const std::vector<std::string>& arguments) {
  const bool terminal_out = isatty(STDOUT_FILENO), terminal_err = isatty(STDERR_FILENO);
  ranks_.resize(options_.processes);
  for (int i = 0; i < options_.processes; ++i) {
    Command command;
    command.executable = options_.executable.empty() ? own_executable() : options_.executable;
    command.arguments = arguments;
    command.environment = environment_for(i);
    command.own_stdout = i == 0 && terminal_out;
    command.own_stderr = i == 0 && terminal_err;
    Spawned spawned = spawn(command);
    Rank& r = ranks_[i];
    r.number = i;
    r.pid = spawned.pid;
    r.alive = true;
    const std::string prefix = i == 0 ? "" : fmt::format("[rank {}] ", i);
    if (spawned.out) {
      r.out = std::make_unique<LineRelay>(std::move(spawned.out), STDOUT_FILENO, prefix, 0);
    }
    if (spawned.err) {
      r.err = std::make_unique<LineRelay>(std::move(spawned.err), STDERR_FILENO, prefix,
                                          options_.remembered_lines);
    }
  }
}

Environment Launch::environment_for(int rank) const {
  Environment result = process_environment();
  // A torchrun around us speaks of its own ranks and its own store.
  std::erase_if(result, [](const auto& v) { return v.first.starts_with("TORCHELASTIC_"); });
  result.emplace("OMP_NUM_THREADS",
                 std::to_string(std::max(1, available_cores() / options_.processes)));
  RankEnvironment ours;
  ours.rank = ours.local_rank = rank;
  ours.world_size = ours.local_world_size = options_.processes;
  ours.master_port = server_.port();
  ours.store_served = true;
  ours.run_id = "local";  // the store is this launch's own
  ours.secret = secret_;
  for (const auto& [name, value] : options_.variables) result[name] = value;
  for (const auto& [name, value] : variables_for(ours)) result[name] = value;
  return result;
}

int Launch::run() {
  while (anyone_alive()) turn();
  const auto end = Clock::now() + kDrainTime;
  const auto reading = [](const Rank& r) {
    return (r.out && r.out->open()) || (r.err && r.err->open());
  };
  while (std::any_of(ranks_.begin(), ranks_.end(), reading) && Clock::now() < end) {
    pump_all(true, milliseconds(20));
  }
  if (!cause_) return 0;
  if (cause_->blame() < 2) report_failure();
  return cause_->signal != 0 ? kPeerLost : cause_->code;
}

void Launch::turn() {
  pump_all(true, std::min(milliseconds(200), time_to_deadline()));
  handle_signals();
  reap();
  if (!deadline_ || Clock::now() < *deadline_) return;
  deadline_.reset();
  if (!stopping_) {
    stop_others();
  } else if (anyone_alive() && !killed_) {
    say(fmt::format("killing the ranks that did not end within {} ms", options_.grace.count()));
    killed_ = true;
    signal_all(SIGKILL);
  }
}

milliseconds Launch::time_to_deadline() const {
  if (!deadline_) return milliseconds::max();
  return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(*deadline_ - Clock::now()));
}

// Waits for signals or output, and passes the output on.
void Launch::pump_all(bool wait, milliseconds timeout) {
  std::vector<pollfd> entries{{signals_.descriptor(), POLLIN, 0}};
  std::vector<LineRelay*> relays;
  for (Rank& r : ranks_) {
    for (LineRelay* relay : {r.out.get(), r.err.get()}) {
      if (!relay || !relay->open()) continue;
      entries.push_back({relay->descriptor(), POLLIN, 0});
      relays.push_back(relay);
    }
  }
  if (poll(entries.data(), entries.size(), wait ? static_cast<int>(timeout.count()) : 0) <= 0) {
    return;
  }
  for (size_t i = 0; i < relays.size(); ++i) {
    if (entries[i + 1].revents && relays[i]->pump()) last_speaker_ = relays[i];
  }
}

void Launch::handle_signals() {
  while (const int signal = signals_.take()) {
    if (signal == SIGCHLD) continue;
    if ((signal == SIGINT || signal == SIGTERM) && ++interruptions_ >= 3) {
      say("interrupted three times: killing the ranks");
      killed_ = true;
      signal_all(SIGKILL);
    } else {
      signal_all(signal);
    }
  }
}

void Launch::signal_all(int signal) {
  for (const Rank& r : ranks_) {
    // Only a kill is for the processes that a rank has started, too: the rest is the rank's
    // business.
    if (r.alive) kill(signal == SIGKILL ? -r.pid : r.pid, signal);
  }
}

void Launch::reap() {
  for (Rank& r : ranks_) {
    siginfo_t info{};
    if (!r.alive ||
        waitid(P_PID, static_cast<id_t>(r.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0) {
      continue;
    }
    // As long as the rank is not waited for, its process group's number is not given to others.
    kill(-r.pid, SIGKILL);
    waitpid(r.pid, nullptr, 0);
    ended(r, info);
  }
}

void Launch::ended(Rank& r, const siginfo_t& info) {
  r.alive = false;
  if (info.si_code == CLD_EXITED) {
    r.code = info.si_status;
  } else {
    r.signal = info.si_status;
  }
  if (!r.failed() || stopping_) return;
  if (!cause_ || r.blame() < cause_->blame()) cause_ = &r;
  const milliseconds patience = cause_->blame() == 0   ? milliseconds(0)
                                : cause_->blame() == 1 ? options_.blame_window
                                                       : options_.grace;
  const auto deadline = Clock::now() + patience;
  deadline_ = deadline_ ? std::min(*deadline_, deadline) : deadline;
}

void Launch::stop_others() {
  stopping_ = true;
  deadline_ = Clock::now() + options_.grace;
  signal_all(SIGTERM);
}

void Launch::report_failure() const {
  const std::string who = fmt::format("rank {} (process {})", cause_->number, cause_->pid);
  if (cause_->signal != 0) {
    const char* name = sigabbrev_np(cause_->signal);
    say(fmt::format(
        "{} was killed by signal {} (SIG{}){}", who, cause_->signal, name ? name : "?",
        cause_->signal == SIGKILL ? "; the kernel does that when memory runs out" : ""));
  } else {
    say(fmt::format("{} failed with exit code {}", who, cause_->code));
  }
  // What stands right above need not be said again.
  if (!cause_->err || cause_->err->last_lines().empty() || last_speaker_ == cause_->err.get())
    return;
  say(fmt::format("the last lines of rank {}:", cause_->number));
  for (const std::string& line : cause_->err->last_lines()) {
    write_all(STDERR_FILENO, "    " + line + "\n");
  }
}

}  // namespace

int launch_local(const LaunchOptions& options, const std::vector<std::string>& arguments) {
  if (options.processes < 1 || options.processes > 4096) {
    fail(ExitCode::usage, "cannot start {} processes: from 1 to 4096 are possible",
         options.processes);
  }
  Launch launch(options, arguments);
  return launch.run();
}

}  // namespace dltrain
