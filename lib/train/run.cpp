#include "train/run.h"

#include <chrono>
#include <optional>

#include <spdlog/spdlog.h>

#include "base/error.h"
#include "config/dump.h"
#include "telemetry/log.h"
#include "train/reporter.h"
#include "train/run_folder.h"
#include "train/session.h"
#include "train/stop.h"
#include "train/trainer.h"

namespace dltrain {
namespace {

class Run {
 public:
  Run(const Experiment& experiment, const RunOptions& options)
      : experiment_(experiment),
        options_(options),
        path_(options.folder.empty() ? std::filesystem::path("runs") / experiment.name
                                     : options.folder) {}

  ExitCode go();
  // Best effort: a failing disk must not hide the first error.
  void write_failure(const Error& error) const;

 private:
  bool leads() const { return options_.rank == 0; }
  void set_up_logging(const std::optional<std::filesystem::path>& folder) const;
  int64_t start(const std::optional<ResumeChoice>& resume);
  void check_resume(const ResumeChoice& choice) const;
  void write_summaries(ExitCode code, const std::string& message) const;

  const Experiment& experiment_;
  const RunOptions& options_;
  std::filesystem::path path_;
  std::optional<RunFolder> folder_;
  Session session_;
  std::optional<TrainOutcome> outcome_;
};

void Run::set_up_logging(const std::optional<std::filesystem::path>& folder) const {
  set_up_log({.level = log_level_from_name(options_.log_level),
              .quiet = options_.quiet,
              .rank = options_.rank,
              .world = options_.world,
              .run_folder = folder},
             console());
}

void Run::check_resume(const ResumeChoice& choice) const {
  const auto differs = [&](const char* key, int64_t saved, int64_t now) {
    if (saved == now) return;
    fail(ExitCode::usage,
         "{} was made with {} {}, this configuration has {}; a resumed run keeps it",
         choice.checkpoint.string(), key, saved, now);
  };
  differs("seed", choice.state.seed, experiment_.seed);
  differs("global_batch_size", choice.state.global_batch, session_.batch.global_batch);
  differs("training samples:", choice.state.train_samples, session_.data.train->size());
}

// Fills the executor; returns the step to go on from.
int64_t Run::start(const std::optional<ResumeChoice>& resume) {
  if (resume) check_resume(*resume);
  const StartReport report = start_session(session_);
  if (report.from_file && leads()) {
    spdlog::info("{}: {} tensors loaded", *experiment_.model.init_from, report.loaded);
    for (const std::string& name : report.missing) spdlog::warn("  not in the file: {}", name);
    for (const std::string& name : report.unexpected) spdlog::warn("  not in the model: {}", name);
  }
  if (!resume) return 0;
  if (!resume->note.empty()) spdlog::warn("{}", resume->note);
  load_checkpoint(*session_.executor, resume->checkpoint, resume->state);
  if (leads()) spdlog::info("resumed from {}", resume->checkpoint.string());
  return resume->state.step;
}

ExitCode Run::go() {
  const auto started = std::chrono::steady_clock::now();
  set_up_logging(std::nullopt);
  install_stop_handlers();
  // Every mistake is found before the first file is written.
  session_ = open_session(experiment_, {.engines = options_.engines,
                                        .collectives = options_.collectives,
                                        .rank = options_.rank,
                                        .world = options_.world,
                                        .local_rank = options_.local_rank});
  folder_.emplace(path_, options_.resume, options_.overwrite, leads());
  if (options_.collectives != nullptr) options_.collectives->barrier();
  const std::optional<ResumeChoice> resume = folder_->resume(options_.resume);
  const std::string resolved = dump_config(experiment_);
  if (leads()) {
    set_up_logging(path_);
    if (!session_.device_note.empty()) spdlog::info("{}", session_.device_note);
  }
  const int64_t first_step = start(resume);
  if (leads()) write_file_atomically(path_ / "config.yaml", resolved);
  Reporter reporter(session_, path_, resume ? std::optional(first_step) : std::nullopt,
                    options_.quiet);
  outcome_ = train(session_, reporter.events(),
                   {.run_folder = path_,
                    .resolved_config = resolved,
                    .first_step = first_step,
                    .started = started});
  reporter.finish(*outcome_, path_);
  ExitCode code = ExitCode::ok;
  std::string message;
  if (outcome_->reason != StopReason::finished) {
    code = ExitCode::stopped;
    message = fmt::format(
        "stopped after step {} by {}; the same command with --resume auto goes on", outcome_->steps,
        outcome_->reason == StopReason::signal ? fmt::format("signal {}", outcome_->signal)
                                               : "the time limit");
    if (leads()) spdlog::warn("{}", message);
  }
  write_summaries(code, message);
  return code;
}

void Run::write_summaries(ExitCode code, const std::string& message) const {
  if (!leads()) return;
  const JsonObject summary =
      make_summary(experiment_, code, message, &session_, outcome_ ? &*outcome_ : nullptr, path_);
  if (folder_) write_summary(path_ / "summary.json", summary);
  if (!options_.result.empty()) write_summary(options_.result, summary);
}

void Run::write_failure(const Error& error) const {
  try {
    write_summaries(error.code(), error.what());
    // Whoever called prints the error; the log keeps it too.
    if (folder_ && leads()) {
      FileWriter log(path_ / "log.txt", /*append=*/true);
      log.write(fmt::format("error: {}\n", error.what()));
      log.close();
    }
  } catch (const Error& second) {
    spdlog::warn("{}", second.what());
  }
}

}  // namespace

ExitCode run_training(const Experiment& experiment, const RunOptions& options) {
  Run run(experiment, options);
  try {
    return run.go();
  } catch (const Error& error) {
    run.write_failure(error);
    throw;
  }
}

}  // namespace dltrain
