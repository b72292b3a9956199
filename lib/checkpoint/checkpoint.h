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

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/atomic_directory.h"
#include "base/verified_files.h"
#include "checkpoint/checkpoint_state.h"
#include "checkpoint/snapshot.h"

namespace dltrain {

// The checkpoints that are not removed.
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

  // Writes a checkpoint: rank 0 begins; then each rank writes and syncs its part; then rank 0
  // finishes: it publishes the checkpoint, points the links at it and removes what `retention` does
  // not keep, which is never that of `latest` or `best`. Between these calls the ranks must agree
  // that no call has failed. All throw Error(storage); the previous checkpoints are then as they
  // were.
  void begin(int64_t step);
  Checksums write_part(const StateSnapshot& snapshot, int64_t step, int rank) const;
  std::filesystem::path finish(const StateSnapshot& snapshot, const CheckpointState& state,
                               const std::string& config, const Retention& retention,
                               const std::vector<Checksums>& parts);

  // Writes a checkpoint of weights alone: `write` fills model.safetensors. Points `latest` at it.
  std::filesystem::path write_weights(const CheckpointState& state, const std::string& config,
                                      const std::function<void(FileWriter&)>& write);

  // Removes the checkpoints that `retention` does not keep, but for those of `latest` and `best`
  // and those that are being read (base/run_lock.h).
  void remove_old(const Retention& retention);

  // Sets `latest` and `best` as `state`, from which the run is resumed, requires: they may differ
  // if the run was killed or an older checkpoint is resumed. Removes links to missing checkpoints.
  void repair_links(const CheckpointState& state);

 private:
  std::filesystem::path publish(const CheckpointState& state, const std::string& config);
  void set_link(const char* link, int64_t step);

  std::filesystem::path folder_;
  std::unique_ptr<AtomicDirectory> directory_;  // of the checkpoint that is being written
};

// The step in the name of a folder that list() returned.
int64_t checkpoint_step(const std::filesystem::path& checkpoint);
// Reads state.json after verifying the files of a checkpoint. `tensors`: gets the checksums of the
// tensors' files, which are then left for load_checkpoint() to verify; nullptr: all are verified
// here. Throws Error(storage).
CheckpointState read_checkpoint_state(const std::filesystem::path& checkpoint,
                                      Checksums* tensors = nullptr);
// Restores parameters, buffers and moments. Throws Error(storage) for another model's checkpoint.
void load_checkpoint(Executor& executor, const std::filesystem::path& checkpoint,
                     const CheckpointState& state, VerifiedFiles& files);
void load_checkpoint(Executor& executor, const std::filesystem::path& checkpoint,
                     const CheckpointState& state);
// Returns whether the checkpoint has the state of this model, by name and shape: of the file with
// tensors of that role (parameter: with buffers).
bool has_state_of(const Executor& executor, const std::filesystem::path& checkpoint, Role role);

}  // namespace dltrain
