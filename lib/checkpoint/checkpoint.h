// Checkpoints of a run folder: checkpoints/step-000500/ with
//
//   model.safetensors      parameters and buffers, logical names, the axes of files
//   optimizer.safetensors  moments, carried state, scales
//   ema.safetensors        with training.ema: the averages, under the names of model.safetensors
//   state.json             CheckpointState, with the format's version and the names of all files
//   config.yaml            resolved configuration
//   checksums.json         size and XXH3-128 of each
//
// and two links: `latest` to the newest checkpoint, `best` to that of the best evaluation.
//
// With ZeRO (parallelism.zero_stage) each rank writes some of the tensors, unsharded and under the
// same names: model-00001-of-00004.safetensors and so on, with model.safetensors.index.json, which
// maps tensors to files; likewise optimizer. Both forms can be read with any number of ranks and
// any stage.
//
// A checkpoint is complete or absent: it is written to a temporary folder and renamed; an earlier
// one is only removed (save_total_limit) after a newer one is complete.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/atomic_directory.h"
#include "checkpoint/weights.h"
#include "data/schema.h"
#include "experiment/metric_watch.h"
#include "runtime/executor.h"

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

// Earlier formats have no times, tokens and fingerprints (empty: unknown).
struct CheckpointState {
  int64_t format = 0;   // of the file that it was read from
  int64_t step = 0;     // completed optimizer steps; the data position is step · global_batch
  int64_t updates = 0;  // steps with finite gradients, which were applied
  int64_t seed = 0;
  int64_t global_batch = 0;
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
  // Hashes of some training samples, the tokenizer and the teacher's weights.
  std::string data_fingerprint = {}, tokenizer = {}, teacher = {};
  std::string teacher_checkpoint = {};
};

// Which checkpoints stay.
struct Retention {
  int64_t newest = 0;      // so many of the newest; 0: all
  int64_t keep_every = 0;  // and every one whose step is a multiple of this; 0: none
};

class CheckpointFolder {
 public:
  // `folder`: <run>/checkpoints. Creates nothing.
  explicit CheckpointFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // Removes temporary folders of earlier, killed processes.
  void clean();
  // Complete checkpoints by ascending step (by name; contents are verified on load).
  std::vector<std::filesystem::path> list() const;

  // Writes a checkpoint, points the links at it and removes what `retention` does not keep, which
  // is never that of `latest` or `best`. Throws Error(storage) when writing fails; the previous
  // checkpoints are then as they were.
  std::filesystem::path save(const StateSnapshot& snapshot, const CheckpointState& state,
                             const std::string& config, const Retention& retention);

  // The same by all ranks together. Rank 0 begins; then each rank writes and syncs its part; then
  // rank 0 finishes or drops the checkpoint. Between these calls the ranks must agree that no call
  // has failed.
  void begin_sharded(int64_t step);
  Checksums write_part(const StateSnapshot& snapshot, int64_t step, int rank);
  std::filesystem::path finish_sharded(const StateSnapshot& snapshot, const CheckpointState& state,
                                       const std::string& config, const Retention& retention,
                                       const std::vector<Checksums>& parts);
  void drop() { sharded_.reset(); }

  // Sets `latest` and `best` as `state`, from which the run is resumed, requires: they may differ
  // if the run was killed or an older checkpoint is resumed. Removes links to missing checkpoints.
  void repair_links(const CheckpointState& state);

 private:
  void set_link(const char* link, int64_t step);
  void remove_old(const CheckpointState& state, const Retention& retention);

  std::filesystem::path publish(AtomicDirectory& directory, const CheckpointState& state,
                                const std::string& config, const Retention& retention);

  std::filesystem::path folder_;
  std::unique_ptr<AtomicDirectory> sharded_;
};

// The step in the name of a folder that list() returned.
int64_t checkpoint_step(const std::filesystem::path& checkpoint);
// Reads state.json of a checkpoint of this format or an earlier one after verifying all files.
// Throws Error(storage).
CheckpointState read_checkpoint_state(const std::filesystem::path& checkpoint);
// Restores parameters, buffers and moments. Throws Error(storage) for another model's checkpoint.
void load_checkpoint(Executor& executor, const std::filesystem::path& checkpoint,
                     const CheckpointState& state);

}  // namespace dltrain
