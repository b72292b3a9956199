// The training loop: loader → micro-steps → update → reports, evaluations, checkpoints, until the
// last step, early stopping, a signal, the time limit or a step that is not finite.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "nn/metrics.h"
#include "run/session.h"

namespace dltrain {

// One logged step.
struct StepRecord {
  int64_t step = 0;  // 1 after the first
  double epoch = 0;
  double loss = 0;  // mean over the global batch's valid targets
  std::vector<std::pair<std::string, double>> metrics;  // accuracy, …: means likewise
  std::vector<std::pair<std::string, std::vector<double>>> expert_load = {};  // RouterReport::load
  double learning_rate = 0;
  double grad_norm = 0;   // before clipping
  bool skipped = false;   // not finite, nothing was changed (on_non_finite: skip, or fp16)
  double loss_scale = 0;  // of the next step; 0: without loss scaling
  // Means over the steps since the record before, without evaluations, samples and saving.
  double samples_per_second = 0;
  double step_ms = 0, data_wait_ms = 0;
  int64_t tokens_seen = 0;  // of data with tokens, padding included; this is no mean
  double tokens_per_second = 0;
};

struct EvaluationRecord {
  int64_t step = 0;
  int64_t samples = 0;
  std::vector<std::pair<std::string, double>> metrics;                        // loss first
  std::vector<std::pair<std::string, std::vector<double>>> expert_load = {};  // RouterReport::load
  int64_t tokens_seen = 0;                                                    // in training
  double seconds = 0;
  bool best = false;    // by checkpoint.metric, of all evaluations of the run so far
  ClassReport classes;  // empty unless evaluation.metrics asks for it
};

// Texts that the model has continued.
struct SampleRecord {
  int64_t step = 0;
  struct Text {
    std::string prompt, text;  // the text without the prompt
    std::string finish;        // finish_reason_name() (generate/generator.h)
    int64_t tokens = 0;        // new ones
  };
  std::vector<Text> texts;
};

// Called between the micro-batches of long work; returns whether to stop it.
using StopCheck = std::function<bool()>;

// Callbacks of the loop, called on rank 0 only, from the training thread.
struct TrainEvents {
  std::function<void(int64_t step)> on_progress;  // every step, cheap
  std::function<void(const StepRecord&)> on_step;
  // Called before on_evaluation if evaluation.predictions is set; returns false if `stop` ended it.
  std::function<bool(int64_t step, const StopCheck& stop)> predict;
  std::function<void(const EvaluationRecord&)> on_evaluation;
  std::function<void(const SampleRecord&)> on_samples;
  std::function<void(const std::filesystem::path&)> on_checkpoint;
  std::function<void(const std::string&)> on_warning;
};

struct TrainOptions {
  std::filesystem::path run_folder;  // empty: no checkpoints (checks, benchmarks)
  std::string resolved_config;       // saved with each checkpoint
  CheckpointState origin = {};       // the state that checkpoints of this run start from
  bool saved = true;  // run_folder contains the checkpoint of the first step, or that is step 0
  bool handle_signals = true;
  int64_t steps = INT64_MAX;  // the greatest number of steps of this call
  // After this step the run is evaluated and saved, and ends as if it were stopped.
  int64_t stop_at = INT64_MAX;
  // Observes every step from `observed_from` on (counted from 0); outlives the call. nullptr: none.
  StepObserver* observer = nullptr;
  int64_t observed_from = 0;
  std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
};

enum class StopReason : uint8_t { finished, signal, time_limit, early_stopping, stop_at };
std::string_view stop_reason_name(StopReason reason);

// Returns whether early stopping has ended the run whose checkpoint contains `record`.
bool has_stopped_early(const Experiment& experiment, const MetricRecord& record);

struct TrainOutcome {
  StopReason reason = StopReason::finished;
  int signal = 0;
  int64_t steps = 0;  // done in total, resumed ones included
  StepRecord last_step;
  EvaluationRecord last_evaluation;  // samples 0: none
  MetricRecord best;                 // by checkpoint.metric; step 0: none
  double first_step_ms = 0;  // from the start of the process to the end of the first step here
  double step_ms_min = 0, step_ms_median = 0;  // of the steps here but the first
  double data_wait_ms = 0;                     // a step
  double seconds = 0;                          // in the loop
  TimeSpent time;                              // of all attempts
};

// Returns the checkpoints of a run that are not removed.
Retention retention_of(const Experiment& experiment);

// Throws Error(diverged), Error(memory) if rows had no room in the buffers between the ranks of
// experts (parallelism.expert_buffer), Error(storage), Error(rank), and Error(data) for a sample
// that cannot be read: rank 0 has then saved a checkpoint of the last complete step, unless ranks
// save together.
TrainOutcome train(Session& session, const TrainEvents& events, const TrainOptions& options);

// Evaluates the model on the eval split (or its first `samples`). Returns nothing if `stop`, which
// is called before each micro-batch and must return the same on all ranks, has ended it.
std::optional<EvaluationRecord> evaluate(Session& session, int64_t step,
                                         const StopCheck& stop = {});

}  // namespace dltrain
