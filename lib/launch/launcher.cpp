#include "launch/launcher.h"

#include <algorithm>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <random>

#include <sys/resource.h>

#include "base/error.h"
#include "base/file.h"
#include "base/parse_number.h"
#include "comm/watch.h"
#include "launch/cpus.h"
#include "launch/rendezvous.h"
#include "launch/worker_group.h"

namespace dltrain {
namespace {

using std::chrono::milliseconds;

// The maximum of --monitor-interval: failures must reach the ranks and the other nodes in time.
constexpr milliseconds kMaxPause{200};

// Makes a new folder, so that files of an earlier run with the same name are kept and several
// launchers can use the same --log-dir.
std::filesystem::path make_log_folder(const LaunchOptions& options) {
  const bool own = !options.log_dir.empty();
  std::error_code missing;
  const auto folder = own ? options.log_dir : std::filesystem::temp_directory_path(missing);
  if (missing) {
    fail(ExitCode::storage, "there is no folder for temporary files ($TMPDIR: {}); set --log-dir",
         missing.message());
  }
  auto path = folder / fmt::format("{}{}_{}", own ? "" : "dltrain_", options.run_id,
                                   random_name().substr(0, 8));
  make_directories(path);
  return path;
}

// OpenMP variables that bind threads take precedence.
bool binds_cpus(const LaunchOptions& options) {
  for (const char* name : {"OMP_PLACES", "OMP_PROC_BIND", "GOMP_CPU_AFFINITY"}) {
    if (std::getenv(name) != nullptr || options.variables.contains(name)) return false;
  }
  return options.bind_cpus;
}

class Launcher {
 public:
  Launcher(const LaunchOptions& options, const std::vector<std::string>& arguments)
      : options_(options),
        arguments_(arguments),
        secret_(!options.secret.empty() || !options.address.empty() ? options.secret
                                                                    : random_name()),
        cpus_(divide_cpus(find_usable_cpus(), options.processes, binds_cpus(options))),
        pause_(std::min(options.monitor_interval, kMaxPause)),
        rendezvous_(options, secret_, [this] { return interrupted(); }) {}

  int run();

 private:
  struct Progress {
    int64_t begun = 0, step = 0;  // the maximum of all attempts
    int64_t saved = 0;            // step of the newest checkpoint
  };

  // Returns true if waits for other launchers are to end. While ranks are running, which stop in
  // order, only the third signal does that.
  bool interrupted() { return signals_.interruptions() >= (has_ranks_ ? 3 : 1); }
  std::optional<Failure> attempt(const Round& round);
  void find_silence();
  void exchange_failures(WorkerGroup& group, const Round& round);
  std::optional<Failure> settle(WorkerGroup& group, const Round& round);
  std::optional<Failure> own_failure(const WorkerGroup& group);
  std::string early_stop(const Failure& own);
  std::optional<RankFailure> read_rank_failure();
  Environment environment_for(const Round& round, int local) const;
  std::string reason_to_end(const Failure& failure, const Round& round);
  int64_t read_number(const char* name);
  bool read_progress();

  const LaunchOptions& options_;
  const std::vector<std::string>& arguments_;
  SignalSource signals_;  // before any thread and any child
  bool has_ranks_ = false;
  std::string secret_;
  CpuDivision cpus_;
  milliseconds pause_;  // interval of reading the store
  Rendezvous rendezvous_;
  std::optional<Failure> remote_failure_;  // reported by another node
  Progress progress_;
  int fruitless_ = 0;  // consecutive restarts without progress
  Clock::time_point next_look_{};
  WatchedRank rank_0_;          // of this attempt
  std::filesystem::path logs_;  // of this run; empty until it is made
};

int Launcher::run() {
  for (;;) {
    has_ranks_ = false;
    const auto round = rendezvous_.join_round(progress_.begun > 0);
    if (!round) return static_cast<int>(ExitCode::stopped);
    const auto failure = attempt(*round);
    if (!failure) {
      rendezvous_.leave();
      return 0;
    }
    const bool is_leader = rendezvous_.is_leader();
    const std::string own_reason = is_leader ? reason_to_end(*failure, *round) : "";
    const std::string reason = rendezvous_.decide_restart(own_reason);
    if (!reason.empty()) {
      if (is_leader && reason != "final") print_line(reason);
      if (is_leader && progress_.saved > 0 && failure->code == static_cast<int>(ExitCode::rank)) {
        print_line(fmt::format("the same command with --resume auto continues from step {}",
                               progress_.saved));
      }
      rendezvous_.leave();
      return failure->code;
    }
    if (is_leader) {
      print_line(fmt::format("restart {} of {}{}", rendezvous_.attempt(), round->max_restarts,
                             progress_.saved > 0
                                 ? fmt::format(" from the checkpoint of step {}", progress_.saved)
                                 : ""));
    }
  }
}

// Runs one attempt of all ranks of this node. Returns its failure, which is the same on all nodes.
std::optional<Failure> Launcher::attempt(const Round& round) {
  remote_failure_.reset();
  rank_0_ = {};
  std::vector<Environment> environments;
  for (int i = 0; i < options_.processes; ++i) environments.push_back(environment_for(round, i));
  if (logs_.empty() && (options_.tee | options_.redirects) != 0) {
    logs_ = make_log_folder(options_);
    print_line(fmt::format("the output of the ranks is written to {}", logs_.string()));
  }
  const auto logs = logs_ / fmt::format("attempt_{}", rendezvous_.attempt());
  WorkerGroup group(options_, signals_);
  has_ranks_ = true;
  group.start(arguments_, environments, cpus_.ranks, round.first_rank(), logs);
  while (group.alive()) {
    group.process_events(pause_);
    exchange_failures(group, round);
  }
  group.drain();
  const auto failure = settle(group, round);
  if (failure && !failure->message.empty()) {
    print_line(failure->message);
    if (!failure->last_lines.empty() && (remote_failure_ || !group.printed_last())) {
      print_last_lines(failure->rank, failure->last_lines);
    }
  }
  return failure;
}

// Reports a rank 0 that sends no more heartbeats as stuck.
void Launcher::find_silence() {
  // The store did not answer while this process was stopped.
  if (Clock::now() - next_look_ > options_.run.timeout / 2) rank_0_.changed = Clock::now();
  const auto text = rendezvous_.read_of_ranks(watch_keys::position(0));
  auto position = text ? WatchPosition::from_text(*text, INT_MAX) : std::nullopt;
  if (!position) return;  // its time to start is not limited
  rank_0_.note(std::move(*position));
  const std::string message = rank_0_.silence(0, options_.run.timeout);
  if (!message.empty()) rendezvous_.tell_ranks({.rank = 0, .stuck = true, .message = message});
}

// Kills a rank that the others have found to be stuck, and exchanges failures with the other nodes.
void Launcher::exchange_failures(WorkerGroup& group, const Round& round) {
  if (Clock::now() < next_look_) return;
  find_silence();
  next_look_ = Clock::now() + pause_;
  if (const auto reported = read_rank_failure(); reported && reported->stuck) {
    group.kill_stuck(reported->rank, reported->message);
  }
  if (round.nodes.size() == 1 || remote_failure_) return;
  const auto own = own_failure(group);
  if (own && !own->secondary && own->code != static_cast<int>(ExitCode::stopped)) {
    remote_failure_ = rendezvous_.report(*own);
  } else {
    remote_failure_ = rendezvous_.remote_failure();
  }
  if (remote_failure_) group.stop();
}

// Returns the reported failure of the ranks.
std::optional<RankFailure> Launcher::read_rank_failure() {
  const auto text = rendezvous_.read_of_ranks(watch_keys::kFailure);
  return text ? RankFailure::from_text(*text) : std::nullopt;
}

// Returns the failure of this node, with the position and the reason that the ranks have written to
// the store.
std::optional<Failure> Launcher::own_failure(const WorkerGroup& group) {
  auto own = group.failure();
  const auto reported = own && !own->message.empty() ? read_rank_failure() : std::nullopt;
  if (!reported) return own;
  if (own->secondary) {
    own->message = reported->message;
    own->last_lines.clear();
    // The rank that failed may end later, or be on another node.
    own->code = static_cast<int>(reported->code);
  } else if (own->rank == reported->rank) {
    own->message += reported->where;
    const bool failed_itself = own->code != static_cast<int>(ExitCode::rank);
    if (own->last_lines.empty() && failed_itself) own->last_lines = {reported->message};
  }
  return own;
}

// Returns the message for ranks that were stopped. Empty if rank 0 has logged it, as it does when
// the ranks stop after a step.
std::string Launcher::early_stop(const Failure& own) {
  if (rendezvous_.read_of_ranks(watch_keys::kStopLogged)) return "";
  const int signal = signals_.first_interruption();
  const std::string what =
      signal != 0 ? fmt::format("stopped by signal {} (SIG{})", signal, sigabbrev_np(signal))
                  : fmt::format("rank {} was stopped", own.rank);
  const int64_t step = read_number(watch_keys::kStep);
  if (step == 0) return what + " before the first step";
  return what + fmt::format(" after step {}, before that was saved", step);
}

// Called after the last rank of this node has ended: agrees with the other nodes on the failure of
// the attempt, if any.
std::optional<Failure> Launcher::settle(WorkerGroup& group, const Round& round) {
  auto own = own_failure(group);
  if (own && own->code == static_cast<int>(ExitCode::stopped)) {
    own->message = early_stop(*own);
  }
  if (round.nodes.size() == 1) return own;
  const auto blame_end =
      Clock::now() + (own && own->secondary ? options_.cause_window : milliseconds(0));
  while (!remote_failure_) {
    if (own && Clock::now() >= blame_end) {
      remote_failure_ = rendezvous_.report(*own);
      break;
    }
    remote_failure_ = rendezvous_.remote_failure();
    if (remote_failure_ || (!own && rendezvous_.all_done(round))) break;
    group.process_events(pause_);
    if (signals_.interruptions() >= 3) {
      return Failure{.code = static_cast<int>(ExitCode::stopped),
                     .message = "interrupted while the other nodes were running"};
    }
  }
  return remote_failure_ ? remote_failure_ : own;
}

Environment Launcher::environment_for(const Round& round, int local) const {
  Environment result = process_environment();
  // Variables of an outer launcher describe its own ranks and store.
  std::erase_if(result, [](const auto& v) {
    return v.first.starts_with("TORCHELASTIC_") || v.first == "DLTRAIN_RESTARTED" ||
           v.first == "DLTRAIN_HOST_ADDRESS";
  });
  result.emplace("OMP_NUM_THREADS", std::to_string(cpus_.threads));
  const LaunchNode& node = round.nodes[static_cast<size_t>(round.own)];
  const RankEnvironment rank{.rank = round.first_rank() + local,
                             .world_size = round.world_size(),
                             .local_rank = local,
                             .local_world_size = options_.processes,
                             .master_address = rendezvous_.address(),
                             .master_port = rendezvous_.port(),
                             .store_served = true,
                             .run_id = options_.run_id,
                             .secret = secret_,
                             .node = round.own,
                             .nodes = static_cast<int>(round.nodes.size()),
                             .host_address = round.nodes.size() > 1 ? node.address : "",
                             .restarts = rendezvous_.attempt(),
                             .max_restarts = round.max_restarts,
                             .run_has_begun = round.run_has_begun};
  for (const auto& [name, value] : options_.variables) result[name] = value;
  for (const auto& [name, value] : variables_for(rank)) result[name] = value;
  return result;
}

// Returns why there is no restart; empty if there is one. "final" is not printed.
std::string Launcher::reason_to_end(const Failure& failure, const Round& round) {
  const bool further = read_progress();
  fruitless_ = further || rendezvous_.attempt() == 0 ? 0 : fruitless_ + 1;
  if (round.max_restarts == 0 || failure.code == static_cast<int>(ExitCode::stopped) ||
      signals_.interruptions() > 0) {
    return "final";
  }
  if (!is_recoverable(failure.code)) {
    return fmt::format("no restart: it would fail in the same way (exit code {})", failure.code);
  }
  if (rendezvous_.attempt() >= round.max_restarts) {
    return fmt::format("no restart: {} of {} restarts are used up", rendezvous_.attempt(),
                       round.max_restarts);
  }
  if (fruitless_ >= kMaxFruitlessRestarts) {
    return fmt::format("no restart: the last {} restarts made no progress after step {}",
                       fruitless_, progress_.step);
  }
  return "";
}

// Reads a number that the ranks of this attempt have written; 0 if there is none.
int64_t Launcher::read_number(const char* name) {
  const auto text = rendezvous_.read_of_ranks(name);
  return text ? parse_number<int64_t>(*text).value_or(0) : 0;
}

// Updates the progress from this attempt. Returns true if it is further in steps or checkpoints.
bool Launcher::read_progress() {
  const Progress before = progress_;
  progress_.begun = std::max(before.begun, read_number(watch_keys::kBegun));
  progress_.step = std::max(before.step, read_number(watch_keys::kStep));
  if (progress_.begun > 0 && options_.run.saved_step) progress_.saved = options_.run.saved_step();
  return progress_.step > before.step || progress_.saved > before.saved;
}

}  // namespace

std::string random_name() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

int launch(const LaunchOptions& options, const std::vector<std::string>& arguments) {
  if (options.processes < 1 || options.processes > 4096) {
    fail(ExitCode::usage, "cannot start {} processes: expected 1 to 4096", options.processes);
  }
  // For each rank: two pipes, its log files and its connection to the store.
  const auto needed = 20 + 6 * static_cast<size_t>(options.processes);
  allow_descriptors(needed);
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < needed) {
    fail(ExitCode::usage,
         "a launcher of {} ranks needs {} open files, but the limit is {} (ulimit -n)",
         options.processes, needed, limit.rlim_cur);
  }
  try {
    return Launcher(options, arguments).run();
  } catch (const Error& error) {
    if (error.code() != ExitCode::stopped) throw;
    print_line(error.what());
    return static_cast<int>(ExitCode::stopped);
  }
}

}  // namespace dltrain
