// What a run tells TensorBoard (`logging.tensorboard`): the scalars of metrics.jsonl, histograms of
// weights and gradients, the first training images as they enter the net, and the configuration.
// Reads the run, changes nothing of it: weights are the same bits with and without.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "telemetry/tensorboard.h"
#include "train/trainer.h"

namespace dltrain {

class TensorBoardLog {
 public:
  // `folder`: the run folder. `resumed_step`: see TensorBoardWriter.
  TensorBoardLog(const Session& session, const std::filesystem::path& folder,
                 std::optional<int64_t> resumed_step, const std::string& resolved_config);

  void add_step(const StepRecord& record);
  void add_evaluation(const EvaluationRecord& record);
  void add_samples(const SampleRecord& record);
  // Call after every step; writes histograms where logging.histogram_steps says so. The state of
  // the executor is that after the step, its gradients are those of it.
  void after_step(int64_t step);

 private:
  void add_first_images();

  const Session& session_;
  TensorBoardWriter writer_;
};

}  // namespace dltrain
