#include "run/run.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <thread>

#include <nlohmann/json.hpp>
#include <omp.h>

#include "base/error.h"
#include "base/host_name.h"
#include "base/json.h"
#include "base/log.h"
#include "base/owned_files.h"
#include "base/stop.h"
#include "base/version.h"
#include "comm/watch.h"
#include "config/dump.h"
#include "run/advice.h"
#include "run/device_ranks.h"
#include "run/memory_fit.h"
#include "run/process_age.h"
#include "run/reporter.h"
#include "run/resume.h"
#include "run/run_record.h"
#include "run/same_configuration.h"
#include "run/session.h"
#include "run/trainer.h"
#include "runtime/host_reduce.h"
#include "runtime/remote_error.h"
#include "telemetry/log.h"
#include "telemetry/metrics.h"
#include "telemetry/prometheus.h"

namespace dltrain {
namespace {

constexpr uint64_t kMaxSummaryBytes = 1 << 20, kMaxConfigBytes = 64 << 20;

std::filesystem::path run_path(const Experiment& experiment, const RunOptions& options) {
  return options.folder.empty() ? std::filesystem::path("runs") / experiment.name : options.folder;
}

// The names of the tokenizer's files, which are saved in the run folder.
std::vector<std::string> tokenizer_files(const Session& session) {
  std::vector<std::string> names;
  if (const auto tokenizer = session.data.train->tokenizer()) {
    for (const TokenizerFile& file : tokenizer->files()) names.push_back(file.name);
  }
  return names;
}

class Run {
 public:
  Run(Experiment& experiment, const RunOptions& options)
      : experiment_(experiment), options_(options), path_(run_path(experiment, options)) {}

  ExitCode go();
  // Leaves the group of ranks (device_ranks.h).
  void leave(const std::exception& error) const { abort_ranks(options_.ranks, session_, error); }
  // Writes the summaries of a failed run. Errors of this are only logged, so that they do not hide
  // the first one.
  void write_failure(ExitCode code, const std::string& message);

 private:
  bool is_leader() const { return options_.ranks.is_leader(); }
  bool discards() const {
    return options_.overwrite && !options_.resuming && options_.resume == "never";
  }
  void compare_configurations() const;
  void set_up_logging(const std::optional<std::filesystem::path>& folder) const;
  void prepare(const std::function<void()>& part) const;
  void open_device();
  void open();
  void start();
  void choose(const std::string& damage = "");
  void check_memory();
  std::string finished_summary() const;
  void report_finished() const;
  void compare_data() const;
  void compare_starts() const;
  void begin(const std::string& resolved);
  void note_attempt(const CheckpointState& origin) const;
  void write_start(const std::string& resolved) const;
  void find_shared_folder(const std::string& resolved) const;
  void restore_folder(const std::string& resolved, const CheckpointState& origin);
  void log_start() const;
  void log_changes() const;
  CheckpointState origin();
  std::string stop_message() const;
  void write_summaries(ExitCode code, const std::string& message) const;

  Experiment& experiment_;
  const RunOptions& options_;
  std::filesystem::path path_;
  std::optional<RunFolder> folder_;
  std::unique_ptr<RankAgreement> agreement_;  // outlives the session
  SelectedDevice chosen_;
  Session session_;
  std::optional<ResumeChoice> resume_;
  std::vector<ConfigDifference> changes_;  // since the checkpoint
  int64_t attempt_ = 1;
  std::optional<LoadedWeights> loaded_;
  std::string memory_;    // MemoryFit::text()
  std::string finished_;  // the summary of a run that needs no more steps
  bool begun_ = false;    // this run has written to the run folder
  std::optional<TrainOutcome> outcome_;
  std::optional<Reporter> reporter_;
};

void Run::set_up_logging(const std::optional<std::filesystem::path>& folder) const {
  set_up_log({.level = log_level_from_name(options_.log_level),
              .quiet = options_.quiet,
              .rank = options_.ranks.rank,
              .marked = options_.ranks.marked,
              .run_folder = folder},
             console());
}

// Runs a part of the preparation on every rank. Only the first rank that fails reports its error.
void Run::prepare(const std::function<void()>& part) const {
  run_on_all_ranks(options_.ranks.collectives, [&] {
    try {
      const StoppableWork stoppable;
      part();
      check_stop();
    } catch (const std::exception& error) {
      if (agreement_) agreement_->abort(error.what());  // others may wait for a choice
      throw;
    }
  });
}

// Throws Error(usage) if the ranks were started with different options.
void Run::compare_configurations() const {
  if (options_.ranks.store == nullptr) return;
  const bool by_node =
      experiment_.parallelism.zero_shard_size == "node" && options_.ranks.ranks_per_node > 0;
  if (by_node && options_.ranks.local_rank != options_.ranks.rank % options_.ranks.ranks_per_node) {
    fail(ExitCode::usage,
         "parallelism.zero_shard_size: node needs neighbouring ranks on a node; rank {} is number "
         "{} of the {} on its own (the launcher's option that maps ranks to nodes decides)",
         options_.ranks.rank, options_.ranks.local_rank, options_.ranks.ranks_per_node);
  }
  const nlohmann::json path = path_.string(), resume = options_.resume;
  const std::string all =
      dump_config(experiment_) +
      fmt::format("output_dir: {}\nresume: {}\noverwrite: {}\nallow_changes: {}\n", json_text(path),
                  json_text(resume), options_.overwrite, options_.allow_changes) +
      (by_node ? fmt::format("ranks_per_node: {}\n", options_.ranks.ranks_per_node) : "");
  check_same_configuration(*options_.ranks.store, options_.ranks.rank, options_.ranks.world, all);
}

// With several ranks the device is opened first, because it decides how they communicate.
void Run::open_device() {
  if (options_.ranks.collectives == nullptr) return;
  chosen_ = choose_device(experiment_.device, options_.engines, options_.ranks.local_rank);
}

void Run::open() {
  declare_output(path_);  // not in a folder whose files are data
  agreement_ = agreement_of(experiment_, options_.ranks);
  session_ = open_session(experiment_,
                          {.engines = options_.engines,
                           .ranks = options_.ranks,
                           .agreement = agreement_.get(),
                           .log_notices = false},
                          std::move(chosen_));
  check_sources(session_, path_, discards());
  const std::string& prometheus = experiment_.logging.prometheus;
  if (is_leader() && !prometheus.empty()) PrometheusFile::check(prometheus);
  folder_.emplace(path_, options_.resuming ? "auto" : options_.resume,
                  options_.overwrite && !options_.resuming, is_leader(), tokenizer_files(session_));
}

// Throws Error(data) if the ranks read other data or tokenizers. Hashes are of some samples.
void Run::compare_data() const {
  if (!agreement_) return;
  for (const auto& [what, data] :
       {std::pair("data.train", session_.data.train), {"data.eval", session_.data.eval}}) {
    if (!data) continue;
    const DataFingerprint hash = fingerprint(*data);
    check_same_on_ranks(session_.options, what,
                        fmt::format("{} {} {}", data->size(), hash.inputs, hash.targets));
    if (const auto tokenizer = data->tokenizer()) {
      check_same_on_ranks(session_.options, std::string("the tokenizer of ") + what,
                          tokenizer->identity());
    }
  }
}

// Chooses the checkpoint to resume from, or the next one if the chosen one is damaged.
void Run::choose(const std::string& damage) {
  if (!damage.empty()) {
    if (!resume_->newest && !is_leader()) return;  // rank 0 reports the error
    resume_ = instead_of_damaged(*resume_, damage);
  } else {
    if (options_.resuming) resume_ = choose_resume(path_, "auto", Verify::when_loaded);
    if (!resume_) resume_ = choose_resume(path_, options_.resume, Verify::when_loaded);
  }
  if (resume_ && !options_.overwrite && !options_.resuming) {
    check_no_newer(path_, options_.resume, *resume_);
  }
  if (!resume_) return;
  changes_ = check_resume(*resume_, session_, options_.allow_changes);
  session_.resume_at(resume_->state.position());
  finished_ = finished_summary();
}

// Loads or initialises the state of the executor.
void Run::start() {
  prepare([this] { choose(); });
  prepare([this] { compare_starts(); });
  if (finished_.empty()) prepare([this] { check_memory(); });
  prepare([this] { loaded_ = start_session(session_, resume_ ? &resume_->state : nullptr); });
  while (resume_) {
    const std::string damage =
        load_chosen(*session_.executor, *resume_, options_.ranks.collectives);
    if (damage.empty()) break;
    prepare([&] { choose(damage); });
    prepare([this] { compare_starts(); });
  }
  if (resume_) resume_->kept.reset();  // save_total_limit may remove the checkpoint from now on
}

// Throws Error(memory) with what would need less if the memory does not suffice.
void Run::check_memory() {
  const std::vector<MemoryLimit> limits = limits_of(session_);
  const MemoryFit fit = memory_fit(session_, limits);
  memory_ = fit.text();
  if (fit.fits()) return;
  fail(ExitCode::memory, "the run {}",
       is_leader() ? memory_verdict(session_, fit, limits) : memory_);
}

// Throws Error(usage) if the ranks have found different checkpoints.
void Run::compare_starts() const {
  const int32_t step = resume_ ? static_cast<int32_t>(resume_->state.step) : -1;
  const int32_t finished = finished_.empty() ? 0 : 1;
  std::array<int32_t, 4> most{step, -step, finished, -finished};
  static const auto subject = std::make_shared<const std::string>("whether all ranks can begin");
  reduce_on_host(options_.ranks.collectives, std::span<int32_t>(most), ReduceOp::max, subject);
  if (most[0] == -most[1] && most[2] == -most[3]) return;
  const auto found = [](int32_t at) {
    return at < 0 ? std::string("none") : fmt::format("step {}", at);
  };
  fail(ExitCode::usage,
       "ranks found different checkpoints or summaries in {} ({} and {}); the run folder must be "
       "on a file system that all nodes share",
       path_.string(), found(-most[1]), found(most[0]));
}

// Returns the summary of a run that has completed all its steps, or an empty text.
std::string Run::finished_summary() const {
  const bool early = has_stopped_early(experiment_, resume_->state.early_stopping);
  if (resume_->state.step < session_.max_steps && !early) return "";
  std::error_code ignored;
  const auto path = path_ / "summary.json";
  if (!std::filesystem::exists(path, ignored)) return "";
  const std::string text = read_file(path, kMaxSummaryBytes, ExitCode::storage);
  const auto summary = try_parse_json(text);
  if (!summary.is_object() || summary.value("exit_code", -1) != 0 ||
      summary.value("steps", int64_t{-1}) != resume_->state.step) {
    return "";
  }
  return text;
}

void Run::report_finished() const {
  const bool early = has_stopped_early(experiment_, resume_->state.early_stopping);
  log_info("{}: the run is complete ({} steps{})", path_.string(), resume_->state.step,
           early ? ", stopped early" : "");
  if (!options_.result.empty()) write_file_atomically(options_.result, finished_);
}

// Keeps the configuration of the earlier steps beside the new one and logs the differences.
void Run::log_changes() const {
  if (changes_.empty()) return;
  const std::string name = fmt::format("config.until-step-{:06}.yaml", resume_->state.step);
  claim_files(path_, {name});
  write_file_atomically(path_ / name, read_file(resume_->checkpoint / "config.yaml",
                                                kMaxConfigBytes, ExitCode::storage));
  // A run is often resumed to train for more steps, so this is no warning.
  const bool expected = std::all_of(changes_.begin(), changes_.end(), [](const auto& change) {
    return change.path == "training.max_steps" || change.path == "training.num_epochs";
  });
  log_message(expected ? LogLevel::info : LogLevel::warning,
              fmt::format("settings changed from step {} on ({} has the earlier ones):\n{}",
                          resume_->state.step, name, describe_differences(changes_)));
}

// Returns the state that the checkpoints of this attempt start from, with the time lost by earlier
// attempts.
CheckpointState Run::origin() {
  CheckpointState out = resume_ ? resume_->state : CheckpointState();
  if (const auto tokenizer = session_.data.train->tokenizer()) {
    out.tokenizer = tokenizer->identity();
  }
  const DataFingerprint data = fingerprint(*session_.data.train);
  out.data_fingerprint = data.inputs;
  out.targets_fingerprint = data.targets;
  out.teacher = session_.teacher_fingerprint();
  out.teacher_checkpoint = session_.teacher_checkpoints();
  out.base = session_.base;
  const EarlierAttempts earlier = earlier_attempts(path_ / "metrics.jsonl");
  attempt_ = earlier.attempts + 1;
  if (earlier.attempts == 0) return out;
  out.time.lost += 1e-3 * process_age_ms();
  const double kept = resume_ ? resume_->state.saved_at : earlier.first;
  if (kept > 0) out.time.lost += std::max(0.0, earlier.last - kept);
  return out;
}

void Run::log_start() const {
  if (!session_.device_note.empty()) log_info("{}", session_.device_note);
  if (const auto& begins = session_.executor->training().stages; !begins.empty()) {
    log_info("{} stages; those after the first begin with {}", begins.size() + 1,
             fmt::join(begins, ", "));
  }
  if (const auto kernels = kernels_of_step(session_); !kernels.empty()) log_info("{}", kernels);
  if (!options_.layout.empty()) log_info("{}", options_.layout);
  log_info("memory: {}", memory_);
  log_notices(session_.executor->device());
  for (const std::string& sentence : advice(session_)) log_warning("{}", sentence);
  if (loaded_) {
    log_info("{}: {} tensors loaded", loaded_->from.string(), loaded_->loaded);
    for (const auto& name : loaded_->missing) log_warning("  not in the file: {}", name);
    for (const auto& name : loaded_->unexpected) log_warning("  not in the model: {}", name);
    for (const auto& shapes : loaded_->reshaped) log_warning("  {}: initialised again", shapes);
    for (const auto& name : loaded_->not_finite) {
      log_warning("  has values that are not finite: {}", name);
    }
  }
  if (!resume_ && options_.resume == "auto" &&
      earlier_attempts(path_ / "metrics.jsonl").attempts > 0) {
    log_warning(
        "{} contains no checkpoint: the run starts from the beginning and replaces metrics.jsonl",
        path_.string());
  }
  if (resume_ && !resume_->note.empty()) log_warning("{}", resume_->note);
  if (resume_) log_info("resumed from {}", resume_->checkpoint.string());
}

// Writes the first files of the run folder. Files of an earlier run are unchanged until here.
void Run::begin(const std::string& resolved) {
  folder_->begin(resume_);
  if (options_.ranks.watch != nullptr) options_.ranks.watch->begun();
  begun_ = true;
  set_up_logging(path_);
  log_start();
  log_changes();
  write_start(resolved);
}

void Run::write_start(const std::string& resolved) const {
  write_file_atomically(path_ / "config.yaml", resolved);
  if (const auto tokenizer = session_.data.train->tokenizer()) save_tokenizer(*tokenizer, path_);
}

// Throws Error(storage) if this rank saves shards and does not see the file that rank 0 has
// written.
void Run::find_shared_folder(const std::string& resolved) const {
  if (is_leader() || !session_.shares_state()) return;
  const std::filesystem::path file = path_ / "config.yaml";
  // Network file systems may show a new file up to a minute later.
  const std::chrono::duration<double> limit(experiment_.parallelism.join_timeout);
  const auto end = std::chrono::steady_clock::now() + limit;
  do {
    std::error_code ignored;
    if (std::filesystem::exists(file, ignored) &&
        read_file(file, kMaxConfigBytes, ExitCode::storage) == resolved) {
      return;
    }
    check_stop();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  } while (std::chrono::steady_clock::now() < end);
  fail(ExitCode::storage,
       "rank {} on {} does not see the run folder {} of rank 0: ranks that save shards need a "
       "folder that all of them share (--output-dir; an absolute path if they were started in "
       "different folders)",
       options_.ranks.rank, host_name(), path_.string());
}

// Makes the folder that of a run again if it was deleted or moved meanwhile.
void Run::restore_folder(const std::string& resolved, const CheckpointState& origin) {
  std::error_code ignored;
  if (!is_leader() || std::filesystem::exists(path_ / "config.yaml", ignored)) return;
  try {
    folder_->restore();
    note_attempt(origin);
    write_start(resolved);
    log_warning(
        "{} was deleted or moved during the run; it is made again, and what was saved in "
        "it before is not there",
        path_.string());
  } catch (const Error& error) {  // the next line of metrics.jsonl tries again
    log_warning("{} was deleted or moved during the run: {}", path_.string(), error.what());
  }
}

// Adds this start of the run to attempts.jsonl.
void Run::note_attempt(const CheckpointState& origin) const {
  if (!is_leader()) return;
  std::error_code ignored;
  claim_files(path_, {kAttemptsFile});
  write_attempt(path_, {.attempt = attempt_,
                        .time = unix_time(),
                        .command = options_.command,
                        .folder = std::filesystem::current_path(ignored).string(),
                        .host = host_name(),
                        .dltrain = std::string(version()),
                        .revision = std::string(git_revision()),
                        .device = session_.executor->device().properties().name,
                        .data = origin.data_fingerprint,
                        .ranks = options_.ranks.world,
                        .threads = omp_get_max_threads()});
}

std::string Run::stop_message() const {
  const int64_t steps = outcome_->steps;
  if (outcome_->reason == StopReason::stop_at) {
    const bool before = resume_ && resume_->state.step == steps;
    return fmt::format("{} {}{}; --resume auto continues without --stop-at, or with a later step",
                       before ? "nothing to do: step" : "stopped after step", steps,
                       before ? " was reached before" : " by --stop-at");
  }
  return fmt::format("stopped {} by {}; {}",
                     steps > 0 ? fmt::format("after step {}", steps) : "before the first step",
                     outcome_->reason == StopReason::signal
                         ? fmt::format("signal {}", outcome_->signal)
                         : "the time limit",
                     options_.go_on);
}

ExitCode Run::go() {
  const auto started = std::chrono::steady_clock::now();
  set_up_logging(std::nullopt);
  install_stop_handlers();
  // All checks come before the first change to a file of an earlier run.
  CollectiveBackendChoice choice;
  prepare([this] {
    compare_configurations();
    open_device();
  });
  prepare([&] { choice = choose_collective_backend(experiment_, options_.ranks, chosen_); });
  prepare([this] { open(); });
  prepare([this] { compare_data(); });
  join_ranks(session_, choice);
  start();
  const std::string resolved = dump_config(experiment_);
  prepare([&] {
    if (!is_leader()) return;
    finished_.empty() ? begin(resolved) : report_finished();
  });
  if (!finished_.empty()) return ExitCode::ok;
  prepare([&] { find_shared_folder(resolved); });
  const CheckpointState before = origin();
  note_attempt(before);
  reporter_.emplace(session_, path_, resume_ ? std::optional(session_.position.step) : std::nullopt,
                    before.evaluation_due, attempt_, resolved, options_.quiet);
  TrainEvents events = reporter_->events();
  events.on_step = [&, log = events.on_step](const StepRecord& record) {
    restore_folder(resolved, before);
    log(record);
  };
  outcome_ = train(session_, events,
                   {.run_folder = path_,
                    .resolved_config = resolved,
                    .origin = before,
                    .saved = !resume_ || resume_->checkpoint.parent_path() == path_ / "checkpoints",
                    .stop_at = stop_at(options_.stop_at, session_.max_steps),
                    .started = started});
  restore_folder(resolved, before);
  reporter_->finish(*outcome_, path_);
  // Waits for the last messages before connections are closed.
  if (StreamCollectives* group = session_.executor->device_group()) group->barrier();
  ExitCode code = ExitCode::ok;
  std::string message;
  if (outcome_->reason == StopReason::early_stopping) {
    const auto& stopping = *experiment_.training.early_stopping;
    message = fmt::format("stopped early after step {}: {} did not improve in {} evaluations",
                          outcome_->steps, stopping.metric, stopping.patience);
    if (is_leader()) log_info("{}", message);
  } else if (outcome_->reason != StopReason::finished) {
    code = ExitCode::stopped;
    message = stop_message();
    const bool wanted = outcome_->reason == StopReason::stop_at;
    if (is_leader()) log_message(wanted ? LogLevel::info : LogLevel::warning, message);
  }
  write_summaries(code, message);
  reporter_->end(code);
  // Commands at checkpoints have ended, so what they held back can be removed.
  if (is_leader() && !experiment_.hooks.checkpoint.empty()) {
    CheckpointFolder(path_ / "checkpoints").remove_old(retention_of(experiment_));
  }
  return code;
}

void Run::write_summaries(ExitCode code, const std::string& message) const {
  if (!is_leader()) return;
  const JsonObject summary =
      make_summary(experiment_, code, message, &session_, outcome_ ? &*outcome_ : nullptr, path_)
          .add("attempt", attempt_);
  if (begun_) write_summary(path_ / "summary.json", summary);
  if (options_.result.empty() || is_input_too(options_.result)) return;
  write_summary(options_.result, summary);
}

void Run::write_failure(ExitCode code, const std::string& message) {
  try {
    write_summaries(code, message);
    // The caller prints the error; the log file gets it here.
    if (begun_) {
      FileWriter log(path_ / "log.txt", /*append=*/true);
      log.write(fmt::format("error: {}\n", message));
      log.close();
    }
  } catch (const std::exception& second) {
    log_warning("{}", second.what());
  }
  if (reporter_) reporter_->end(code);
}

}  // namespace

int64_t stop_at(const std::string& text, int64_t max_steps) {
  if (text.empty()) return INT64_MAX;
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(end, text.data() + text.size());
  if (error != std::errc() || !(number > 0) || number > 1e15 || (!unit.empty() && unit != "%") ||
      (unit.empty() && number != std::floor(number))) {
    fail(ExitCode::usage, "--stop-at '{}' is no number of steps and no share such as 25%", text);
  }
  const double steps = unit.empty() ? number : 0.01 * number * static_cast<double>(max_steps);
  // A share such as 11.1111111 % of 900 steps means 100.
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(steps - 1e-6)));
}

std::string check_run(Session& session, const RunOptions& options) {
  log_level_from_name(options.log_level);
  const auto path = run_path(*session.experiment, options);
  check_sources(session, path, options.overwrite && options.resume == "never");
  check_run_folder(path, options.resume, options.overwrite, tokenizer_files(session));
  const auto resume = choose_resume(path, options.resume);
  if (!options.overwrite) check_no_foreign(path, resume);
  if (!resume) return fmt::format("would start a new run in {}", path.string());
  if (!options.overwrite) check_no_newer(path, options.resume, *resume);
  const auto changes = check_resume(*resume, session, options.allow_changes);
  return fmt::format("would resume from {}, step {}, in {}{}{}", resume->checkpoint.string(),
                     resume->state.step, path.string(),
                     changes.empty() ? "" : ", with changed settings:\n",
                     describe_differences(changes));
}

ExitCode run_training(Experiment& experiment, const RunOptions& options) {
  Run run(experiment, options);
  // A stop before the first step is logged unless a launcher of dltrain reports it.
  const auto stopped = [&](const std::string& why) {
    if (options.ranks.is_leader() && !options.ranks.marked) log_warning("{}", why);
    return ExitCode::stopped;
  };
  try {
    return run.go();
  } catch (const RemoteError& error) {
    if (error.remote_code() == ExitCode::stopped) {
      return stopped(fmt::format("rank {} was stopped before the first step", error.rank()));
    }
    run.leave(error);
    if (options.ranks.is_leader()) run.write_failure(error.remote_code(), error.what());
    throw;
  } catch (const std::exception& error) {  // Error, or std::bad_alloc and the like
    const ExitCode code = exit_code_of(error);
    if (code == ExitCode::stopped) return stopped(error.what());
    run.leave(error);
    run.write_failure(code, error.what());
    throw;
  }
}

}  // namespace dltrain
