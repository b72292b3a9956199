// The options of eval and predict for trained models: a configuration, and one or more checkpoints
// of it or of their own configurations.
#pragma once

#include <memory>

#include "checkpoint/run_folder.h"
#include "dltrain/commands.h"
#include "run/predict.h"

namespace dltrain {

// A model with the weights of a checkpoint. `experiment` outlives `session`.
struct TrainedModel {
  std::unique_ptr<Experiment> experiment;
  ResumeChoice checkpoint;
  Session session;
};

// The positional arguments: experiment files, a model unless --checkpoint names one, and a file or
// folder of new data.
struct ModelArguments {
  std::vector<std::string> configs, models;
  std::string data;  // empty: the data of the configuration
};

struct CheckpointOptions {
  ConfigOptions config;
  std::vector<std::string> checkpoints;

  void add_to(CLI::App& command);
  // Throws Error(usage) for other arguments.
  ModelArguments arguments() const;
  // Opens the i-th model on one rank. Without a configuration each checkpoint's own one is used.
  // `train`: use the training split for evaluation, in file order and unchanged. `targets`: the
  // data must have targets.
  TrainedModel open(size_t i, bool train = false, bool targets = true) const;
};

// Returns the mean of the predictions of all models. `first` is model 0, opened; the others are
// opened with `train` and `targets`.
Predictions predict_all(const CheckpointOptions& options, const TrainedModel& first,
                        std::optional<int64_t> limit, bool train = false, bool targets = true);

}  // namespace dltrain
