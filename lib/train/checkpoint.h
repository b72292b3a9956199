// Checkpoints of a run folder: checkpoints/step-000500/ with
//
//   model.safetensors      parameters and buffers, logical names, the axes of files
//   optimizer.safetensors  moments, carried state, scales
//   ema.safetensors        with training.ema: the averages, under the names of model.safetensors
//   state.json             CheckpointState, with the format's version and the names of all files
//   config.yaml            resolved configuration
//   checksums.json         size and XXH3-128 of each
//
// With ZeRO (parallelism.zero_stage) the ranks write the tensors together, each some of them, whole
// and under the same names: model-00001-of-00004.safetensors and so on, with
// model.safetensors.index.json, which says where a tensor lies; likewise optimizer. Any number of
// ranks and any stage reads either form.
//
// and two links: `latest`, to the newest, and `best`, to that of the best evaluation. A checkpoint
// is complete or absent: it is written beside and renamed; an earlier one is only removed
// (save_total_limit) after a newer one is complete.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/atomic_directory.h"
#include "data/schema.h"
#include "train/executor.h"
#include "train/metric_watch.h"
#include "train/weights.h"

namespace dltrain {

// What a run's steps have cost so far, in all its attempts: seconds of rank 0.
struct TimeSpent {
  double training = 0, evaluation = 0, saving = 0;
  double waiting = 0;  // for data
  double lost = 0;     // to restarts: starting again, and steps that were done again
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

// Those of earlier formats have no times, tokens and fingerprints (empty: unknown).
struct CheckpointState {
  int64_t format = 0;   // that it was read from
  int64_t step = 0;     // optimizer steps done; the data position is step · global_batch
  int64_t updates = 0;  // of them applied (gradients were finite)
  int64_t seed = 0;
  int64_t global_batch = 0;
  int64_t train_samples = 0;
  MetricRecord best = {};            // of checkpoint.metric
  MetricRecord early_stopping = {};  // of training.early_stopping
  std::string optimizer = {};        // its type; empty where an earlier version saved
  DataSchema data = {};              // of the training data
  // Of a run that scales its loss (fp16): the scale of the next step, and finite steps since it
  // last changed.
  std::optional<double> loss_scale = {};
  int64_t scale_streak = 0;
  // A stop came before the evaluation and the samples of this step: the run that goes on from here
  // begins with them.
  bool evaluation_due = false;
  int64_t tokens_seen = 0;  // of data with tokens
  TimeSpent time = {};
  double saved_at = 0;  // seconds since 1970
  // What these weights belong to: some training samples, the tokenizer, the teacher's weights.
  std::string data_fingerprint = {}, tokenizer = {}, teacher = {};
  std::string teacher_checkpoint = {};  // where they lay
};

// Which checkpoints stay.
struct Retention {
  int64_t newest = 0;      // so many of the newest; 0: all
  int64_t keep_every = 0;  // and every one whose step is a multiple of this; 0: none
};

class CheckpointFolder {
 public:
  // `folder`: <run>/checkpoints. Clears what killed writers left. Nothing is created yet.
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

  // The same by all ranks together. Rank 0 begins; then each writes its part, which is synced when
  // that returns; then rank 0 finishes, or drops the whole. Between these the ranks must have
  // agreed that all went well.
  void begin_together(int64_t step);
  Checksums write_part(const StateSnapshot& snapshot, int64_t step, int rank);
  std::filesystem::path finish_together(const StateSnapshot& snapshot, const CheckpointState& state,
                                        const std::string& config, const Retention& retention,
                                        const std::vector<Checksums>& parts);
  void drop() { together_.reset(); }

  // Points `latest` and `best` at what `state`, from which the run goes on, says: a run that was
  // killed, or goes on from an older checkpoint, may have left them elsewhere. A checkpoint that is
  // not in this folder has no link.
  void repair_links(const CheckpointState& state);

 private:
  void point(const char* link, int64_t step);
  void remove_old(const CheckpointState& state, const Retention& retention);

  std::filesystem::path publish(AtomicDirectory& directory, const CheckpointState& state,
                                const std::string& config, const Retention& retention);

  std::filesystem::path folder_;
  std::unique_ptr<AtomicDirectory> together_;
};

// The step in the name of a folder that list() returned.
int64_t checkpoint_step(const std::filesystem::path& checkpoint);
// Reads state.json of one checkpoint, of this format or an earlier one, after verifying that all
// files are there and whole. Throws Error(storage).
CheckpointState read_checkpoint_state(const std::filesystem::path& checkpoint);
// Puts parameters, buffers and moments back. Throws Error(storage) for another model's checkpoint.
void load_checkpoint(Executor& executor, const std::filesystem::path& checkpoint,
                     const CheckpointState& state);

}  // namespace dltrain
