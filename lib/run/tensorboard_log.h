// The event files of a run for TensorBoard (`logging.tensorboard`): the scalars of metrics.jsonl,
// histograms of weights and gradients, the first training images, the configuration, and the
// hyperparameters that are not the defaults. Does not change the run: weights have the same bits
// with and without it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "run/trainer.h"
#include "telemetry/tensorboard.h"

namespace dltrain {

class TensorBoardLog {
 public:
  // `folder`: the run folder. `resumed_step`: see TensorBoardWriter.
  TensorBoardLog(const Session& session, const std::filesystem::path& folder,
                 std::optional<int64_t> resumed_step, const std::string& resolved_config);

  void add_step(const StepRecord& record);
  void add_evaluation(const EvaluationRecord& record);
  void add_samples(const SampleRecord& record);
  // Called after every step with the state and gradients of that step in the executor; writes
  // histograms by logging.histogram_steps.
  void after_step(int64_t step);
  // Marks the run as complete; returns why that failed, or "".
  std::string end();

 private:
  void add_first_images();

  const Session& session_;
  TensorBoardWriter writer_;
  int64_t step_ = 0;  // the last one
};

}  // namespace dltrain
