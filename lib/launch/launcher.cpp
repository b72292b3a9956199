#include "launch/launcher.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/host_name.h"
#include "comm/watch_records.h"
#include "launch/rendezvous.h"
#include "launch/worker_group.h"

namespace dltrain {
namespace {

using std::chrono::milliseconds;

// However rarely the user wants looks: the ranks and the other nodes wait for what one of them has
// found out, and a launcher that leads stays for the others only a moment.
constexpr milliseconds kLongestPause{200};

// A new folder: what an earlier run under the same name has left is not touched, and several
// launchers may share the place.
std::filesystem::path make_log_folder(const LaunchOptions& options) {
  const bool own = !options.log_dir.empty();
  std::error_code missing;
  const auto place = own ? options.log_dir : std::filesystem::temp_directory_path(missing);
  if (missing) {
    fail(ExitCode::storage,
         "there is no folder for temporary files ($TMPDIR: {}); --log-dir names another one",
         missing.message());
  }
  for (;;) {
    const auto path = place / fmt::format("{}{}_{}", own ? "" : "dltrain_", options.run_id,
                                          random_name().substr(0, 8));
    make_directories(place);
    std::error_code problem;
    if (std::filesystem::create_directory(path, problem)) return path;
    if (problem) {
      fail(ExitCode::storage, "cannot make the folder {}: {}", path.string(), problem.message());
    }
  }
}

// Whoever says himself where threads run is not overruled.
CpuBinding binding_of(const LaunchOptions& options) {
  for (const char* name : {"OMP_PLACES", "OMP_PROC_BIND", "GOMP_CPU_AFFINITY"}) {
    if (std::getenv(name) != nullptr || options.variables.contains(name)) return CpuBinding::none;
  }
  return options.binding;
}

class Launcher {
 public:
  Launcher(const LaunchOptions& options, const std::vector<std::string>& arguments)
      : options_(options),
        arguments_(arguments),
        secret_(!options.secret.empty() || !options.address.empty() ? options.secret
                                                                    : random_name()),
        cpus_(divide_cpus(find_usable_cpus(), options.processes, binding_of(options))),
        pause_(std::min(options.monitor_interval, kLongestPause)),
        rendezvous_(options, secret_, [this] { return interrupted(); }) {}

  int run();

 private:
  struct Progress {
    int64_t begun = 0, step = 0, saved = 0;
  };

  // Whether waiting for other launchers is to end: while there are ranks, which end in order, only
  // the third signal does that.
  bool interrupted() { return signals_.interruptions() >= (has_ranks_ ? 3 : 1); }
  std::optional<Failure> attempt(const Round& round);
  void look_around(WorkerGroup& group, const Round& round);
  std::optional<Failure> settle(WorkerGroup& group, const Round& round);
  std::optional<Failure> own_failure(const WorkerGroup& group);
  std::string early_stop(const Failure& own, const Round& round);
  bool made_ranks_leave(const WorkerGroup& group, const std::optional<Verdict>& verdict);
  std::optional<Verdict> read_verdict();
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
  milliseconds pause_;  // between looks
  Rendezvous rendezvous_;
  std::optional<Failure> elsewhere_;  // what another node has reported
  Progress progress_;                 // the furthest that an attempt came
  int fruitless_ = 0;                 // restarts in a row that came no further
  Clock::time_point next_look_{};
  std::filesystem::path logs_;  // of this run; empty: not made yet
};

int Launcher::run() {
  for (;;) {
    has_ranks_ = false;
    const auto round = rendezvous_.meet(progress_.begun > 0);
    if (!round) return static_cast<int>(ExitCode::stopped);
    const auto failure = attempt(*round);
    if (!failure) {
      rendezvous_.leave(*round);
      return 0;
    }
    const bool leads = rendezvous_.leads();
    const std::string own_reason = leads ? reason_to_end(*failure, *round) : "";
    const std::string reason = rendezvous_.decide(own_reason);
    if (!reason.empty()) {
      if (leads && reason != "final") say(reason);
      rendezvous_.leave(*round);
      return failure->code;
    }
    if (leads) {
      say(fmt::format("restart {} of {}{}", rendezvous_.attempt(), round->max_restarts,
                      progress_.saved > 0
                          ? fmt::format(" from the checkpoint of step {}", progress_.saved)
                          : ""));
    }
  }
}

// One attempt of all ranks of this node; returns what made it fail, on all nodes the same.
std::optional<Failure> Launcher::attempt(const Round& round) {
  elsewhere_.reset();
  std::vector<Environment> environments;
  for (int i = 0; i < options_.processes; ++i) environments.push_back(environment_for(round, i));
  if (logs_.empty() && (options_.tee.any() || options_.redirects.any())) {
    logs_ = make_log_folder(options_);
    say(fmt::format("output of the ranks goes to {}", logs_.string()));
  }
  const auto logs = logs_ / fmt::format("attempt_{}", rendezvous_.attempt());
  WorkerGroup group(options_, signals_);
  has_ranks_ = true;
  group.start(arguments_, environments, cpus_.ranks, round.first_rank(), logs);
  while (group.alive()) {
    group.turn(pause_);
    rendezvous_.tell_news();
    const auto begin = Clock::now();
    look_around(group, round);
    if (rendezvous_.leads()) group.was_late(Clock::now() - begin);  // its own store answers at once
  }
  group.drain();
  const auto failure = settle(group, round);
  if (failure && !failure->message.empty()) {
    say(failure->message);
    if (!failure->last_lines.empty() && (elsewhere_ || !group.has_just_spoken())) {
      say_last_lines(failure->rank, failure->last_lines);
    }
  }
  return failure;
}

// Tells the other nodes of a failure here, and learns of one there; looks at what the ranks say of
// each other.
void Launcher::look_around(WorkerGroup& group, const Round& round) {
  if (Clock::now() < next_look_) return;
  next_look_ = Clock::now() + pause_;
  // A rank that neither works nor ends has to be ended.
  if (const auto verdict = read_verdict(); verdict && verdict->stuck) {
    group.condemn(verdict->rank, verdict->message);
  }
  if (round.nodes.size() == 1 || elsewhere_) return;
  const auto own = own_failure(group);
  if (own && !own->secondary && own->code != static_cast<int>(ExitCode::stopped)) {
    elsewhere_ = rendezvous_.report(*own);
  } else {
    elsewhere_ = rendezvous_.failure_elsewhere();
  }
  if (elsewhere_) group.stop();
}

// What the ranks themselves have found out.
std::optional<Verdict> Launcher::read_verdict() {
  const auto text = rendezvous_.ranks_store().try_get(watch_keys::kVerdict);
  return text ? Verdict::from_text(*text) : std::nullopt;
}

// What has failed on this node, with what the ranks have told of it: where the one that was lost
// stood, and the reason, where its own lines cannot be read here.
std::optional<Failure> Launcher::own_failure(const WorkerGroup& group) {
  auto own = group.failure();
  const auto verdict = own && !own->message.empty() ? read_verdict() : std::nullopt;
  if (own && made_ranks_leave(group, verdict)) {
    own->rank = -1;
    own->last_lines.clear();
    own->message = fmt::format(
        "the launcher on {} (process {}) stood still for {:.1f} s, and its ranks lost touch with "
        "the run",
        host_name(), getpid(), static_cast<double>(group.missed().count()) / 1000);
    return own;
  }
  if (!verdict) return own;
  if (own->secondary) {
    own->message = verdict->message;
    own->last_lines.clear();
    // It may take longer to end than those that have lost it, or be elsewhere.
    own->code = static_cast<int>(verdict->code);
    own->curable = is_curable(own->code);
  } else if (own->rank == verdict->rank) {
    own->message += verdict->where;
    const bool failed_itself = own->code != static_cast<int>(ExitCode::rank);
    if (own->last_lines.empty() && failed_itself) own->last_lines = {verdict->message};
  }
  return own;
}

// Whether ranks lost the run because this process stood still, for about as long as they wait. They
// can tell nobody then: at most the store has noticed that one of them was gone.
bool Launcher::made_ranks_leave(const WorkerGroup& group, const std::optional<Verdict>& verdict) {
  if (group.missed() == milliseconds(0)) return false;
  const int64_t timeout = read_number(watch_keys::kTimeout);
  return timeout > 0 && 2 * group.missed().count() >= timeout &&
         (!verdict || group.has_left(verdict->rank));
}

// Of ranks that were stopped: what rank 0 has not told, as it does where they end in order after a
// step. Empty: it has.
std::string Launcher::early_stop(const Failure& own, const Round& round) {
  if (round.world_size() == 1 && !own.obeyed) return "";  // nobody watches it, and it tells all
  if (rendezvous_.ranks_store().try_get(watch_keys::kToldStop)) return "";
  const int signal = signals_.first_interruption();
  const std::string what =
      signal != 0 ? fmt::format("stopped by signal {} (SIG{})", signal, sigabbrev_np(signal))
                  : fmt::format("rank {} was stopped", own.rank);
  const int64_t step = read_number(watch_keys::kStep);
  if (step == 0) return what + " before the first step";
  return what + fmt::format(" after step {}, before that was saved", step);
}

// After the last rank of this node: what the attempt came to, with the other nodes.
std::optional<Failure> Launcher::settle(WorkerGroup& group, const Round& round) {
  auto own = own_failure(group);
  if (own && own->code == static_cast<int>(ExitCode::stopped)) {
    own->message = early_stop(*own, round);
  }
  if (round.nodes.size() == 1) return own;
  const auto blame_end =
      Clock::now() + (own && own->secondary ? options_.blame_window : milliseconds(0));
  while (!elsewhere_) {
    if (own && Clock::now() >= blame_end) {
      elsewhere_ = rendezvous_.report(*own);
      break;
    }
    elsewhere_ = rendezvous_.failure_elsewhere();
    if (elsewhere_ || (!own && rendezvous_.all_done(round))) break;
    // There is nobody here to pass signals to; the other nodes have their own.
    group.turn(pause_);
    rendezvous_.tell_news();
    if (signals_.interruptions() >= 3) {
      return Failure{.code = static_cast<int>(ExitCode::stopped),
                     .message = "interrupted while the other nodes were at work"};
    }
  }
  return elsewhere_ ? elsewhere_ : own;
}

Environment Launcher::environment_for(const Round& round, int local) const {
  Environment result = process_environment();
  // A launcher around us speaks of its own ranks and its own store.
  std::erase_if(result, [](const auto& v) {
    return v.first.starts_with("TORCHELASTIC_") || v.first == "DLTRAIN_RESTARTED" ||
           v.first == "DLTRAIN_HOST_ADDRESS";
  });
  result.emplace("OMP_NUM_THREADS", std::to_string(cpus_.threads));
  const LaunchNode& node = round.nodes[static_cast<size_t>(round.own)];
  RankEnvironment ours;
  ours.rank = round.first_rank() + local;
  ours.world_size = round.world_size();
  ours.local_rank = local;
  ours.local_world_size = options_.processes;
  ours.node = round.own;
  ours.nodes = static_cast<int>(round.nodes.size());
  ours.host_address = round.nodes.size() > 1 ? node.address : "";
  ours.master_address = rendezvous_.address();
  ours.master_port = rendezvous_.port();
  ours.store_served = true;
  ours.run_id = options_.run_id;
  ours.secret = secret_;
  ours.restarts = rendezvous_.attempt();
  ours.max_restarts = round.max_restarts;
  ours.run_has_begun = round.run_has_begun;
  for (const auto& [name, value] : options_.variables) result[name] = value;
  for (const auto& [name, value] : variables_for(ours)) result[name] = value;
  return result;
}

// Why there is no other attempt; empty: there is one. "final": there is nothing to say about it.
std::string Launcher::reason_to_end(const Failure& failure, const Round& round) {
  const bool further = read_progress();
  fruitless_ = further || rendezvous_.attempt() == 0 ? 0 : fruitless_ + 1;
  if (round.max_restarts == 0 || failure.code == static_cast<int>(ExitCode::stopped) ||
      signals_.interruptions() > 0) {
    return "final";
  }
  if (!failure.curable) {
    return fmt::format("no restart: it would end the same way (code {})", failure.code);
  }
  if (rendezvous_.attempt() >= round.max_restarts) {
    return fmt::format("no restart: {} of {} are used up", rendezvous_.attempt(),
                       round.max_restarts);
  }
  if (fruitless_ >= kFruitless) {
    return fmt::format("no restart: the last {} came no further than step {}", fruitless_,
                       progress_.step);
  }
  return "";
}

// That the ranks of this attempt have written; 0: none.
int64_t Launcher::read_number(const char* name) {
  const auto text = rendezvous_.ranks_store().try_get(name);
  int64_t value = 0;
  if (text) std::from_chars(text->data(), text->data() + text->size(), value);
  return value;
}

// Takes over how far the ranks came in this attempt; whether that is further than ever.
bool Launcher::read_progress() {
  const Progress now{.begun = read_number(watch_keys::kBegun),
                     .step = read_number(watch_keys::kStep),
                     .saved = read_number(watch_keys::kSaved)};
  const bool further = now.step > progress_.step || now.saved > progress_.saved;
  progress_.begun = std::max(progress_.begun, now.begun);
  progress_.step = std::max(progress_.step, now.step);
  progress_.saved = std::max(progress_.saved, now.saved);
  return further;
}

}  // namespace

bool StreamChoice::any() const {
  return all != 0 || std::any_of(of_local.begin(), of_local.end(),
                                 [](const auto& entry) { return entry.second != 0; });
}

std::string random_name() {
  std::array<unsigned char, 16> bytes{};
  check_internal(getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
                 "getrandom: {}", std::strerror(errno));
  std::string name;
  for (const unsigned char b : bytes) name += fmt::format("{:02x}", b);
  return name;
}

int launch(const LaunchOptions& options, const std::vector<std::string>& arguments) {
  if (options.processes < 1 || options.processes > 4096) {
    fail(ExitCode::usage, "cannot start {} processes: from 1 to 4096 are possible",
         options.processes);
  }
  // Of each rank: two pipes, its output's files and its connections to the store.
  const auto needed = static_cast<size_t>(20 + 8 * options.processes);
  allow_descriptors(needed);
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < needed) {
    fail(ExitCode::usage, "a launcher of {} ranks needs {} open files, the limit is {} (ulimit -n)",
         options.processes, needed, limit.rlim_cur);
  }
  try {
    return Launcher(options, arguments).run();
  } catch (const Error& error) {
    if (error.code() != ExitCode::stopped) throw;
    say(error.what());
    return static_cast<int>(ExitCode::stopped);
  }
}

}  // namespace dltrain
