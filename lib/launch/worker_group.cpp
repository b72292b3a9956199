#include "launch/worker_group.h"

#include <algorithm>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"
#include "launch/spawn.h"

namespace dltrain {
namespace {

using std::chrono::milliseconds;

constexpr int kPeerLost = static_cast<int>(ExitCode::rank);
constexpr int kStopped = static_cast<int>(ExitCode::stopped);
// Values of cause_priority(), in addition to 0 for a failure of the rank itself.
constexpr int kForwardedSignal = 1, kLostPeer = 2, kEarlyStop = 3;
// The lines of a failing rank's stderr that are repeated at the end.
constexpr size_t kRememberedLines = 10;
// The time that output is read after the last rank has ended, if a process keeps a pipe open.
constexpr milliseconds kDrainTime{200};

// Opens the log file of a stream of a rank.
FileDescriptor open_log(const std::filesystem::path& folder, int local, const char* name) {
  const auto path = folder / std::to_string(local) / name;
  make_directories(path.parent_path());
  FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!file) fail(ExitCode::storage, "cannot write {}: {}", path.string(), std::strerror(errno));
  return file;
}

}  // namespace

void print_line(const std::string& text) {
  write_all(STDERR_FILENO, "dltrain: " + printable(text) + "\n");
}

void print_last_lines(int rank, const std::vector<std::string>& lines) {
  std::string text = fmt::format("the last lines of rank {}:", rank);
  for (const std::string& line : lines) text += "\n    " + line;
  print_line(text);
}

bool is_recoverable(int code) {
  for (const ExitCode lasting : {ExitCode::usage, ExitCode::data, ExitCode::diverged,
                                 ExitCode::memory, ExitCode::check_failed}) {
    if (code == static_cast<int>(lasting)) return false;
  }
  return true;
}

// The most probable cause has the lowest number: failures of the rank itself, then ranks that an
// interruption has killed before they could stop, then lost peers, then early stops.
int WorkerGroup::Rank::cause_priority() const {
  if (forwarded_signal) return kForwardedSignal;
  if (signal != 0 || !stuck.empty()) return 0;
  return code == kPeerLost ? kLostPeer : code == kStopped ? kEarlyStop : 0;
}

WorkerGroup::~WorkerGroup() {
  for (Rank& r : ranks_) {
    if (!r.alive) continue;
    kill(-r.pid, SIGKILL);
    waitpid(r.pid, nullptr, 0);
  }
}

void WorkerGroup::start(const std::vector<std::string>& arguments,
                        const std::vector<Environment>& environments,
                        const std::vector<std::vector<int>>& cpus, int first_rank,
                        const std::filesystem::path& logs) {
  Command command;
  command.executable = options_.executable.empty() ? own_executable() : options_.executable;
  command.arguments = arguments;
  ranks_.resize(environments.size());
  for (size_t i = 0; i < ranks_.size(); ++i) {
    ranks_[i].number = first_rank + static_cast<int>(i);
    command.environment = environments[i];
    command.cpus = cpus[i];
    start_rank(i, command, logs);
  }
}

void WorkerGroup::start_rank(size_t local, Command& command, const std::filesystem::path& logs) {
  Rank& r = ranks_[local];
  const int index = static_cast<int>(local);
  const int redirects = options_.redirects, filed = redirects | options_.tee;
  const bool is_rank_0 = r.number == 0;
  command.own_stdout = is_rank_0 && (filed & 1) == 0 && isatty(STDOUT_FILENO);
  command.own_stderr = is_rank_0 && (filed & 2) == 0 && isatty(STDERR_FILENO);
  ChildProcess spawned = spawn(command);
  r.pid = spawned.pid;
  r.alive = true;
  const std::string prefix = is_rank_0 ? "" : fmt::format("[rank {}] ", r.number);
  if (spawned.out) {
    r.out = std::make_unique<LineRelay>(std::move(spawned.out), redirects & 1 ? -1 : STDOUT_FILENO,
                                        prefix, 0);
    if (filed & 1) r.out->copy_to(open_log(logs, index, "stdout.log"));
  }
  if (spawned.err) {
    r.err = std::make_unique<LineRelay>(std::move(spawned.err), redirects & 2 ? -1 : STDERR_FILENO,
                                        prefix, kRememberedLines);
    if (filed & 2) r.err->copy_to(open_log(logs, index, "stderr.log"));
  }
}

bool WorkerGroup::alive() const {
  return std::ranges::any_of(ranks_, &Rank::alive);
}

void WorkerGroup::process_events(milliseconds at_most) {
  if (deadline_) at_most = std::min(at_most, time_until(*deadline_));
  pump(at_most);
  handle_signals();
  reap();
  decided_ = decided_ || (cause_ != nullptr && !alive());
  if (!deadline_ || Clock::now() < *deadline_) return;
  deadline_.reset();
  if (!stopping_) {
    stop();
  } else if (alive() && !killed_) {
    print_line(
        fmt::format("killing the ranks that did not end within {} ms", options_.grace.count()));
    killed_ = true;
    signal_all(SIGKILL);
  }
}

// Waits for signals or output, and passes the output on.
void WorkerGroup::pump(milliseconds timeout) {
  std::vector<pollfd> entries{{signals_.descriptor(), POLLIN, 0}};
  std::vector<LineRelay*> relays;
  for (Rank& r : ranks_) {
    for (LineRelay* relay : {r.out.get(), r.err.get()}) {
      if (!relay || !relay->open()) continue;
      entries.push_back({relay->descriptor(), POLLIN, 0});
      relays.push_back(relay);
    }
  }
  if (poll(entries.data(), entries.size(), static_cast<int>(timeout.count())) <= 0) return;
  for (size_t i = 0; i < relays.size(); ++i) {
    if (entries[i + 1].revents && relays[i]->pump()) last_printed_ = relays[i];
  }
}

void WorkerGroup::handle_signals() {
  while (const int signal = signals_.take()) {
    if (signal == SIGCHLD) continue;
    if (is_interruption(signal) && signals_.interruptions() >= 3) {
      print_line("interrupted three times: killing the ranks");
      killed_ = true;
      signal_all(SIGKILL);
    } else {
      interrupted_ = interrupted_ || is_interruption(signal);
      signal_all(signal);
    }
  }
}

void WorkerGroup::signal_all(int signal) {
  for (const Rank& r : ranks_) {
    if (!r.alive) continue;
    // SIGKILL also goes to the processes that a rank has started.
    kill(signal == SIGKILL ? -r.pid : r.pid, signal);
    // A stopped rank could not handle the signal.
    if (is_interruption(signal)) kill(r.pid, SIGCONT);
  }
}

void WorkerGroup::reap() {
  for (Rank& r : ranks_) {
    siginfo_t info{};
    if (!r.alive ||
        waitid(P_PID, static_cast<id_t>(r.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0) {
      continue;
    }
    // Until the rank is reaped, the number of its process group is not reused.
    kill(-r.pid, SIGKILL);
    waitpid(r.pid, nullptr, 0);
    r.alive = false;
    (info.si_code == CLD_EXITED ? r.code : r.signal) = info.si_status;
    r.forwarded_signal = interrupted_ && is_interruption(r.signal);
    for (LineRelay* relay : {r.out.get(), r.err.get()}) {
      if (relay && relay->open() && relay->pump()) last_printed_ = relay;
    }
    ended(r);
  }
}

void WorkerGroup::ended(Rank& r) {
  if (!r.failed()) return;
  if (stopping_) {
    // A rank with an error of its own may take longer to end than those that have lost it.
    const bool has_error = r.signal == 0 && r.cause_priority() == 0;
    if (has_error && cause_ && cause_->cause_priority() == kLostPeer) cause_ = &r;
    return;
  }
  if (!cause_ || r.cause_priority() < cause_->cause_priority()) cause_ = &r;
  const int cause_priority = cause_->cause_priority();
  const milliseconds wait_limit = cause_priority == 0           ? milliseconds(0)
                                  : cause_priority == kLostPeer ? options_.cause_window
                                                                : options_.grace;
  const auto deadline = Clock::now() + wait_limit;
  deadline_ = deadline_ ? std::min(*deadline_, deadline) : deadline;
}

void WorkerGroup::stop() {
  if (stopping_) return;
  stopping_ = decided_ = true;
  deadline_ = Clock::now() + options_.grace;
  signal_all(SIGTERM);
}

void WorkerGroup::kill_stuck(int rank, const std::string& reason) {
  for (Rank& r : ranks_) {
    if (r.number != rank || !r.alive || stopping_) continue;
    r.stuck = reason;
    cause_ = &r;
    kill(-r.pid, SIGKILL);
    stop();
  }
}

std::optional<Failure> WorkerGroup::failure() const {
  if (!decided_ || !cause_) return std::nullopt;
  Failure failure{.code = cause_->forwarded_signal ? kStopped
                          : cause_->signal != 0    ? kPeerLost
                                                   : cause_->code,
                  .secondary = cause_->cause_priority() == kLostPeer,
                  .rank = cause_->number};
  if (cause_->cause_priority() == kForwardedSignal || cause_->cause_priority() == kEarlyStop)
    return failure;
  if (cause_->err) {
    const auto& lines = cause_->err->last_lines();
    failure.last_lines.assign(lines.begin(), lines.end());
  }
  const std::string who = fmt::format("rank {} (process {})", cause_->number, cause_->pid);
  if (!cause_->stuck.empty()) {
    failure.code = kPeerLost;
    failure.message = cause_->stuck;
  } else if (cause_->signal != 0) {
    const char* name = sigabbrev_np(cause_->signal);
    failure.message =
        fmt::format("{} was killed by signal {} (SIG{}{})", who, cause_->signal, name ? name : "?",
                    cause_->signal == SIGKILL ? "; the kernel does that when memory runs out" : "");
  } else {
    failure.message = fmt::format("{} failed with exit code {}", who, cause_->code);
  }
  return failure;
}

void WorkerGroup::drain() {
  const auto end = Clock::now() + kDrainTime;
  const auto reading = [](const Rank& r) {
    return (r.out && r.out->open()) || (r.err && r.err->open());
  };
  while (std::ranges::any_of(ranks_, reading) && Clock::now() < end) {
    pump(milliseconds(20));
  }
}

bool WorkerGroup::printed_last() const {
  return cause_ && (!cause_->err || last_printed_ == cause_->err.get());
}

}  // namespace dltrain
