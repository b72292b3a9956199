// The options that name trained models, shared by eval and predict: a configuration, and one or
// more checkpoints of it or of configurations of their own.
#pragma once

#include <memory>

#include "dltrain/commands.h"
#include "train/predict.h"
#include "train/run_folder.h"

namespace dltrain {

// A model with the weights of a checkpoint. `experiment` outlives `session`.
struct TrainedModel {
  std::unique_ptr<Experiment> experiment;
  ResumeChoice checkpoint;
  Session session;
};

// What the positional arguments are: experiment files, a model where no --checkpoint names one, and
// a file or folder of new data.
struct ModelArguments {
  std::vector<std::string> configs, models;
  std::string data;  // empty: that of the configuration
};

struct CheckpointOptions {
  ConfigOptions config;
  std::vector<std::string> checkpoints;

  void add_to(CLI::App& command);
  // Throws Error(usage) for what is none of them.
  ModelArguments arguments() const;
  // Opens the i-th model on one rank. Without a configuration each checkpoint brings its own.
  // `train`: its eval split is the training split, in file order and unchanged. `targets`: whether
  // the data must have them.
  TrainedModel open(size_t i, bool train = false, bool targets = true) const;
};

// The mean of the predictions of several models; `first` is the 0-th of `options`, opened. The rest
// are opened with `train` and `targets`.
Predictions predict_all(const CheckpointOptions& options, const TrainedModel& first,
                        std::optional<int64_t> limit, bool train = false, bool targets = true);

}  // namespace dltrain
