#include "sweep/runner.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>
#include <memory>
#include <sstream>

#include <poll.h>
#include <sys/wait.h>

#include "base/file.h"
#include "base/run_lock.h"
#include "config/scalar.h"
#include "config/suggest.h"
#include "launch/cpus.h"
#include "launch/signal_source.h"
#include "launch/spawn.h"
#include "run/run_record.h"
#include "telemetry/console.h"
#include "telemetry/progress.h"

namespace dltrain {
namespace {

// The interval between searches for results of other processes.
constexpr int kLookMilliseconds = 1000;

// The first line with an error, else the first message of a launcher; "" if there is none.
std::string error_line(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string out;
  for (std::string line; std::getline(in, line);) {
    if (line.find("warning:") != std::string::npos) continue;
    if (line.find("error:") != std::string::npos) return line;
    if (out.empty() && line.starts_with("dltrain: ")) out = line;
  }
  return out;
}

class SweepRunner {
 public:
  SweepRunner(Trials& trials, const SweepRunnerOptions& options)
      : trials_(trials),
        options_(options),
        slots_(static_cast<size_t>(trials.sweep().parallel)),
        cpus_(divide_cpus(find_usable_cpus(), static_cast<int>(slots_.size()))) {}
  ~SweepRunner() { console().clear_status(); }
  SweepRunner(const SweepRunner&) = delete;
  SweepRunner& operator=(const SweepRunner&) = delete;

  ExitCode run();

 private:
  struct Slot {
    pid_t pid = 0;
    SweepJob job;
    std::unique_ptr<RunLock> lock;
    std::chrono::steady_clock::time_point started;
  };

  bool is_here(const SweepJob& job) const;
  std::unique_ptr<RunLock> lock(const SweepJob& job);
  void fill();
  std::string gpus_of(size_t slot, const Environment& environment) const;
  void start(size_t slot, const SweepJob& job, std::unique_ptr<RunLock> lock);
  std::vector<std::string> arguments_of(const SweepJob& job);
  void reap();
  TrialResult result_of(const Slot& slot, int code) const;
  void forward_signals();
  void show_running() const;
  bool any_running() const {
    return std::ranges::any_of(slots_, [](const Slot& slot) { return slot.pid != 0; });
  }

  Trials& trials_;
  const SweepRunnerOptions& options_;
  SignalSource signals_;
  std::vector<Slot> slots_;
  CpuDivision cpus_;
};

bool SweepRunner::is_here(const SweepJob& job) const {
  return std::ranges::any_of(slots_, [&](const Slot& slot) {
    return slot.pid != 0 && slot.job.trial == job.trial && slot.job.repeat == job.repeat;
  });
}

// Returns nullptr if another process trains this run.
std::unique_ptr<RunLock> SweepRunner::lock(const SweepJob& job) {
  const auto folder = trials_.folder_of(job.trial, job.repeat);
  make_directories(folder);
  try {
    return std::make_unique<RunLock>(folder);
  } catch (const Error& error) {
    if (error.code() == ExitCode::usage) return nullptr;
    throw;
  }
}

std::vector<std::string> SweepRunner::arguments_of(const SweepJob& job) {
  const SweepConfig& sweep = trials_.sweep();
  std::vector<std::string> out{"train"};
  if (sweep.ranks > 1) out.insert(out.end(), {"--nproc-per-node", std::to_string(sweep.ranks)});
  out.insert(out.end(), options_.arguments.begin(), options_.arguments.end());
  const std::vector<std::string> values = *trials_.values(job.trial);
  for (size_t p = 0; p < values.size(); ++p) {
    out.insert(out.end(), {"-s", sweep.parameters[p].key + "=" + values[p]});
  }
  const auto folder = trials_.folder_of(job.trial, job.repeat);
  out.insert(out.end(), {"-s", "sweep=null", "--seed", std::to_string(options_.seed + job.repeat),
                         "--name", options_.name + "-" + folder.filename().string(), "--output-dir",
                         (folder / "run").string(), "--resume", "auto", "--quiet"});
  if (const auto& all = options_.prometheus; !all.empty()) {
    auto own = all;
    own.replace_filename(all.stem().string() + "-" + folder.filename().string());
    own += all.extension();
    out.insert(out.end(), {"-s", "logging.prometheus=" + quoted_when_needed(own.string())});
  }
  const double share = trials_.rounds()[job.round].share;
  if (share < 1) out.insert(out.end(), {"--stop-at", fmt::format("{:.9g}%", 100 * share)});
  return out;
}

// The GPUs of a slot. Their numbers count those that this process may use.
std::string SweepRunner::gpus_of(size_t slot, const Environment& environment) const {
  std::vector<std::string> visible;
  if (const auto outer = environment.find("CUDA_VISIBLE_DEVICES"); outer != environment.end()) {
    std::istringstream list(outer->second);
    for (std::string gpu; std::getline(list, gpu, ',');) visible.push_back(gpu);
  }
  const auto ranks = static_cast<size_t>(trials_.sweep().ranks);
  std::string out;
  for (size_t i = slot * ranks; i < (slot + 1) * ranks; ++i) {
    const auto gpu = static_cast<size_t>(trials_.sweep().gpus[i]);
    if (!visible.empty() && gpu >= visible.size()) {
      fail(ExitCode::usage, "sweep.gpus has GPU {}, but CUDA_VISIBLE_DEVICES has {}", gpu,
           visible.size());
    }
    out += (out.empty() ? "" : ",") + (visible.empty() ? std::to_string(gpu) : visible[gpu]);
  }
  return out;
}

void SweepRunner::start(size_t slot, const SweepJob& job, std::unique_ptr<RunLock> lock) {
  const SweepConfig& sweep = trials_.sweep();
  Command command{.executable = own_executable(),
                  .arguments = arguments_of(job),
                  .environment = process_environment(),
                  .output = trials_.folder_of(job.trial, job.repeat) / "output.txt"};
  // A launcher divides the CPUs of the slot among its ranks.
  if (sweep.ranks == 1) {
    command.environment.emplace("OMP_NUM_THREADS", std::to_string(cpus_.threads));
  }
  if (!cpus_.ranks.empty()) command.cpus = cpus_.ranks[slot];
  if (!sweep.gpus.empty()) {
    command.environment["CUDA_VISIBLE_DEVICES"] = gpus_of(slot, command.environment);
  }
  slots_[slot] = {.pid = spawn(command).pid,
                  .job = job,
                  .lock = std::move(lock),
                  .started = std::chrono::steady_clock::now()};
}

void SweepRunner::fill() {
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot].pid != 0) continue;
    std::unique_ptr<RunLock> held;
    const auto job = trials_.next([&](const SweepJob& candidate) {
      if (is_here(candidate)) return false;
      held = lock(candidate);
      return held != nullptr;
    });
    if (!job) return;
    trials_.refresh(job->trial, job->repeat);  // another process may have ended it just before
    if (trials_.result(*job)) {
      --slot;
      continue;
    }
    start(slot, *job, std::move(held));
  }
}

TrialResult SweepRunner::result_of(const Slot& slot, int code) const {
  const auto folder = trials_.folder_of(slot.job.trial, slot.job.repeat);
  const RunRecord run = read_run(folder / "run");
  TrialResult out{.exit_code = code};
  const bool current =
      run.figures.contains("exit_code") && run.figures.at("exit_code") == static_cast<double>(code);
  if (current) out.figures = run.figures;
  const auto reason = run.texts.find("reason");
  if (code == static_cast<int>(ExitCode::stopped) && current && reason != run.texts.end()) {
    if (reason->second == "stop-at") out.exit_code = 0;
    out.timed_out = reason->second == "time limit";
  }
  // An attempt that had no step left to train has no loss of its own.
  if (out.has_trained() && !out.figures.contains("loss")) {
    const std::vector<RunPoint> curve = read_curve(folder / "run");
    if (!curve.empty()) out.figures["loss"] = curve.back().loss;
  }
  if (!out.has_trained()) {
    const auto message = run.texts.find("message");
    out.message =
        current && message != run.texts.end() ? message->second : error_line(folder / "output.txt");
    if (out.message.empty()) {
      out.message = code >= 128 ? fmt::format("killed by signal {}", code - 128)
                                : fmt::format("exit code {}", code);
    }
  } else if (!std::isnan(out.value(trials_.metric()))) {
    return out;
  } else if (out.timed_out) {
    out.message = fmt::format(
        "no {}: training.max_time ended the run after step {:.0f}, before its first evaluation",
        trials_.metric(), out.value("steps"));
  } else {
    std::vector<std::string> known;
    for (const auto& [key, value] : out.figures) known.push_back(key);
    const std::string near = nearest_name(trials_.metric(), known);
    fail(ExitCode::usage, "the runs have no result '{}' (sweep.metric); {}", trials_.metric(),
         near.empty() ? "they have " + join_names(known) : "did you mean '" + near + "'?");
  }
  return out;
}

void SweepRunner::reap() {
  for (Slot& slot : slots_) {
    if (slot.pid == 0) continue;
    int status = 0;
    if (waitpid(slot.pid, &status, WNOHANG) != slot.pid) continue;
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    const Slot ended = std::exchange(slot, Slot());
    // A run that was stopped with the sweep continues with it.
    if (signals_.interruptions() > 0 && code != 0) continue;
    TrialResult result = result_of(ended, code);
    trials_.store(ended.job, result);
    if (options_.on_result) options_.on_result(ended.job, result);
  }
}

// On a terminal the last line names the folders of the trials that run, with their times.
void SweepRunner::show_running() const {
  std::string text;
  for (const Slot& slot : slots_) {
    if (slot.pid == 0) continue;
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - slot.started;
    text += fmt::format("{}{} for {}", text.empty() ? "running: " : ", ",
                        trials_.folder_of(slot.job.trial, slot.job.repeat).filename().string(),
                        format_duration(time.count()));
  }
  console().set_status(text);
}

void SweepRunner::forward_signals() {
  while (const int signal = signals_.take()) {
    if (signal == SIGCHLD) continue;
    for (const Slot& slot : slots_) {
      if (slot.pid != 0) kill(slot.pid, signal);
    }
  }
}

ExitCode SweepRunner::run() {
  for (;;) {
    forward_signals();
    reap();
    const bool stopping = signals_.interruptions() > 0;
    if (!stopping) fill();
    if (!any_running()) {
      trials_.refresh();
      if (trials_.done()) return ExitCode::ok;
      if (stopping) return ExitCode::stopped;
    }
    show_running();
    pollfd event{.fd = signals_.descriptor(), .events = POLLIN, .revents = 0};
    if (poll(&event, 1, kLookMilliseconds) < 0 && errno != EINTR) {
      fail(ExitCode::internal, "cannot wait for the runs: {}", errno_text(errno));
    }
    if (event.revents == 0) trials_.refresh();
  }
}

}  // namespace

ExitCode train_trials(Trials& trials, const SweepRunnerOptions& options) {
  return SweepRunner(trials, options).run();
}

}  // namespace dltrain
