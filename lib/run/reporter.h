// Writes the events of the training loop to log, progress bar, metrics.jsonl and the final summary.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "run/device_monitor.h"
#include "run/hooks.h"
#include "run/loss_watch.h"
#include "run/tensorboard_log.h"
#include "run/trainer.h"
#include "telemetry/metrics.h"
#include "telemetry/progress.h"
#include "telemetry/prometheus.h"
#include "telemetry/wandb.h"

namespace dltrain {

class Reporter {
 public:
  // Ranks other than 0 only warn if their GPU is throttled. `resumed_step`, `evaluation_due`: see
  // MetricsWriter. `attempt`: the number of the attempt, from 1.
  Reporter(const Session& session, const std::filesystem::path& folder,
           std::optional<int64_t> resumed_step, bool evaluation_due, int64_t attempt,
           const std::string& resolved_config, bool quiet);

  // Callbacks into this object, which must outlive the loop.
  TrainEvents events();

  // Called when the summaries have been written. Ends the files of trackers, and waits for the
  // commands of hooks.
  void end(ExitCode code);
  // Called after the loop: prints the loss curve, the timing and the run folder.
  void finish(const TrainOutcome& outcome, const std::filesystem::path& folder);

 private:
  void log_step(const StepRecord& record);
  void open_wandb(const std::string& resolved_config);
  void watch_device();
  void add_device(JsonObject& line);
  void write_metrics(const JsonObject& line);
  JsonObject line_of(int64_t step, int64_t tokens_seen) const;
  void log_evaluation(const EvaluationRecord& record);
  void log_samples(const SampleRecord& record);
  bool write_predictions(int64_t step, const StopCheck& stop) const;

  const Session& session_;
  std::filesystem::path folder_;
  bool quiet_;
  int64_t attempt_;
  int64_t first_step_;  // the first step of this attempt
  double last_loss_ = 0;
  std::vector<double> losses_;
  LossWatch loss_watch_;
  std::optional<MetricsWriter> metrics_, samples_;
  std::optional<Progress> progress_;
  std::unique_ptr<DeviceMonitor> monitor_;  // null: the device has no sensor
  double peak_flops_ = 0;                   // in the compute type; 0: unknown
  std::optional<TensorBoardLog> tensorboard_;
  std::optional<PrometheusFile> prometheus_;
  std::optional<WandbRun> wandb_;
  std::optional<Hooks> hooks_;  // rank 0
};

// The content of summary.json and --result. `outcome` may be null for a run that failed early.
JsonObject make_summary(const Experiment& experiment, ExitCode code, const std::string& message,
                        const Session* session, const TrainOutcome* outcome,
                        const std::filesystem::path& folder);

}  // namespace dltrain
