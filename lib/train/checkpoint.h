// Checkpoints of a run folder: checkpoints/step-000500/ with
//
//   model.safetensors      parameters and buffers, logical names, the axes of files
//   optimizer.safetensors  moments
//   state.json             format, step, updates, seed, global batch, data size
//   config.yaml            resolved configuration
//   checksums.json         size and XXH3-128 of each
//
// and `latest`, a link to the newest. A checkpoint is complete or absent: it is written beside and
// renamed; an earlier one is only removed (save_total_limit) after a newer one is complete.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "train/executor.h"

namespace dltrain {

struct CheckpointState {
  int64_t step = 0;     // optimizer steps done; the data position is step · global_batch
  int64_t updates = 0;  // of them applied (gradients were finite)
  int64_t seed = 0;
  int64_t global_batch = 0;
  int64_t train_samples = 0;
};

class CheckpointFolder {
 public:
  // `folder`: <run>/checkpoints. Clears what killed writers left. Nothing is created yet.
  explicit CheckpointFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // Removes temporary folders of earlier, killed processes.
  void clean();
  // Complete checkpoints by ascending step (by name; contents are verified on load).
  std::vector<std::filesystem::path> list() const;

  // Throws Error(storage) when writing fails; the previous checkpoints are then as they were.
  std::filesystem::path save(Executor& executor, const CheckpointState& state,
                             const std::string& config, int64_t keep);

 private:
  std::filesystem::path folder_;
};

// The step in the name of a folder that list() returned.
int64_t checkpoint_step(const std::filesystem::path& checkpoint);
// Reads state.json of one checkpoint after verifying all checksums. Throws Error(storage).
CheckpointState read_checkpoint_state(const std::filesystem::path& checkpoint);
// Puts parameters, buffers and moments back. Throws Error(storage) for another model's checkpoint.
void load_checkpoint(Executor& executor, const std::filesystem::path& checkpoint,
                     const CheckpointState& state);

}  // namespace dltrain
