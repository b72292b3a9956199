// Averages of the weights of several checkpoints: those of runs that started from the same weights
// (model soups: Wortsman et al. 2022, "Model soups: averaging weights of multiple fine-tuned
// models"), or of one run (stochastic weight averaging: Izmailov et al. 2018).
#pragma once

#include <filesystem>
#include <vector>

namespace dltrain {

struct AverageRequest {
  std::vector<std::filesystem::path> checkpoints;  // run folders (`latest`) or checkpoints
  std::vector<double> weights = {};                // one for each, or none: equal
  std::filesystem::path folder;                    // the run folder to write
  bool overwrite = false;
};

struct AverageReport {
  std::filesystem::path checkpoint;                // that was written
  std::vector<std::filesystem::path> checkpoints;  // that were read
  std::vector<double> weights;                     // of these, with the sum 1
  size_t tensors = 0;
  int64_t numbers = 0;      // of all tensors
  bool averages = false;    // training.ema: the averages of the runs were taken
  bool statistics = false;  // there are running statistics of batch norm among them
  bool adapters = false;    // there are factors of adapters among them
};

// Writes a run folder with one checkpoint: the weighted mean of each tensor, in f32, added up in
// f64 in the order of the checkpoints; the configuration and the tokenizer of the first; and its
// state, without moments. It can be evaluated, exported and taken as init_from, but not resumed.
// Throws Error(usage) for a wrong number of weights, models that differ in their configuration, and
// a folder that exists; Error(storage) for the first tensor that a checkpoint lacks, has besides,
// or has with another shape.
AverageReport average_checkpoints(const AverageRequest& request);

}  // namespace dltrain
