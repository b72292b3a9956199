// The state of a run that is not in tensors: state.json of a checkpoint (docs/formats.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/schema.h"
#include "experiment/metric_watch.h"

namespace dltrain {

// Time of a run so far, over all attempts, in seconds of rank 0.
struct TimeSpent {
  double training = 0, evaluation = 0, saving = 0;
  double waiting = 0;  // for data
  double lost = 0;     // to restarts: startup and repeated steps
};
struct TimeSpentRow {
  const char* name;
  double TimeSpent::*seconds;
};
inline constexpr TimeSpentRow kTimeSpent[] = {{"training", &TimeSpent::training},
                                              {"evaluation", &TimeSpent::evaluation},
                                              {"saving", &TimeSpent::saving},
                                              {"waiting", &TimeSpent::waiting},
                                              {"lost", &TimeSpent::lost}};

// The position at which training continues. It does not depend on the size of the batches so far.
struct TrainPosition {
  int64_t step = 0;     // completed optimizer steps
  int64_t samples = 0;  // seen in these steps
  int64_t cursor = 0;   // the next sample in the order of the training data (data/sampler.h)
};

// Format 1 has no times, tokens and fingerprints (empty: unknown). Formats 1 and 2 have no position
// but the step, of batches of one size.
struct CheckpointState {
  int64_t format = 0;   // of the file that it was read from
  int64_t step = 0;     // completed optimizer steps
  int64_t updates = 0;  // steps with finite gradients, which were applied
  int64_t samples_seen = 0;
  std::map<std::string, int64_t> cursors = {};  // of each source of data: the next sample
  int64_t seed = 0;
  int64_t global_batch = 0;  // of the last step
  int64_t train_samples = 0;
  MetricRecord best = {};            // of checkpoint.metric
  MetricRecord early_stopping = {};  // of training.early_stopping
  std::string optimizer = {};        // its type; empty in checkpoints of earlier versions
  DataSchema data = {};              // of the training data
  // With loss scaling (fp16): the scale of the next step, and finite steps since it last changed.
  std::optional<double> loss_scale = {};
  int64_t scale_streak = 0;
  // The run was stopped before the evaluation and the samples of this step; the resumed run begins
  // with them.
  bool evaluation_due = false;
  int64_t tokens_seen = 0;  // of data with tokens
  TimeSpent time = {};
  double saved_at = 0;  // seconds since 1970
  // Hashes of some training samples' inputs and targets, the tokenizer and the teacher's weights.
  std::string data_fingerprint = {}, targets_fingerprint = {}, tokenizer = {}, teacher = {};
  std::string teacher_checkpoint = {};
  std::string base = {};     // fingerprint_of_weights() where these are not in the checkpoint
  std::string made_by = {};  // the command that made it, of weights alone: "average"; empty: a run

  TrainPosition position() const;
  void set_position(const TrainPosition& position);
};

// The content of state.json; `files`: the names of the checkpoint's files.
std::string to_json(const CheckpointState& state, const std::vector<std::string>& files);
// Reads state.json of this format or an earlier one. `files`: gets the names of the checkpoint's
// files; none in format 1. Throws Error(storage) at `path`.
CheckpointState read_state_file(const std::filesystem::path& path, std::vector<std::string>& files);

}  // namespace dltrain
