// Parameters and buffers between an executor and safetensors files: initial values, `init_from`,
// and the files of a checkpoint.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "nn/model.h"
#include "tensor/safetensors.h"
#include "train/executor.h"

namespace dltrain {

// Writes initial values of all parameters and buffers (functions of seed and name).
void initialize_weights(Executor& executor, uint64_t seed);

struct LoadedWeights {
  int loaded = 0;
  std::vector<std::string> missing;     // parameters that the file lacks (strict: false)
  std::vector<std::string> unexpected;  // tensors of the file that the model lacks
};

// model.init_from. f32, f64, bf16 and f16 tensors are converted. Throws Error(storage) for a tensor
// of another shape (naming both), and with `strict` for missing or surplus tensors; buffers may be
// missing either way (weights are often saved without running statistics).
LoadedWeights load_weights(Executor& executor, const std::filesystem::path& file,
                           const TextPairs& rename, bool strict);

// Writes every checkpointed tensor of the given roles in the order of files; `prefix` is stripped
// nowhere: names are state names. Parameters and buffers go to model.safetensors, moments to
// optimizer.safetensors.
void save_tensors(Executor& executor, FileWriter& file, const std::vector<Role>& roles,
                  const SafetensorsMetadata& metadata);
// Reads them back; every tensor must be there, and no other. Throws Error(storage).
void restore_tensors(Executor& executor, const std::filesystem::path& file,
                     const std::vector<Role>& roles);

}  // namespace dltrain
