// Parameters and buffers between an executor and safetensors files: initial values, `init_from`,
// and the files of a checkpoint.
#pragma once

#include <deque>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "nn/model.h"
#include "runtime/executor.h"
#include "tensor/safetensors.h"
#include "tensor/safetensors_set.h"

namespace dltrain {

// Writes initial values of all parameters and buffers (functions of seed and name).
void initialize_weights(Executor& executor, uint64_t seed);

struct LoadedWeights {
  int loaded = 0;
  std::filesystem::path from;  // the file, or the folder with model.safetensors
  // Name and shape of parameters that the file lacks (strict: false), and of tensors that the model
  // lacks.
  std::vector<std::string> missing, unexpected;
  std::vector<std::string> not_finite = {};  // parameters with a NaN or an infinity
};

// A parameter and the floating tensor of a file that has its shape; `files` must stay open.
struct FoundWeight {
  const ParameterInfo* info = nullptr;
  SafetensorsSet::Tensor tensor;
};
// Finds the parameters in a model.init_from: a file, or a folder (tensor/safetensors_set.h), with
// Hugging Face's names if it has a config.json. Throws Error(storage) for a tensor of another shape
// (naming both), and with `strict` for missing or surplus tensors; buffers may be missing (weights
// are often saved without running statistics). Also throws Error(storage) if no parameter is found.
// `keys`: messages may suggest model.strict and model.rename.
std::vector<FoundWeight> find_weights(const std::vector<ParameterInfo>& parameters,
                                      const SafetensorsSet& files, const TextPairs& rename,
                                      bool strict, LoadedWeights& report, bool keys = true);
// Returns the file or folder of a model.init_from: for a run folder (or its folder `checkpoints`)
// the checkpoint that find_checkpoint() finds, else `path`. A checkpoint is verified.
std::filesystem::path location_of_weights(const std::filesystem::path& path);
// Opens the result of location_of_weights() and writes the weights into a store; converts f32, f64,
// bf16 and f16.
LoadedWeights load_weights(WeightStore& store, const std::filesystem::path& path,
                           const TextPairs& rename, bool strict);

// Sets the averages (role ema) to the values of their parameters, as before the first update.
void start_averages(Executor& executor);

// Opens the weights of a checkpoint that evaluations use: the averages, if it has them, then the
// parameters.
std::deque<SafetensorsSet> trained_weights(const std::filesystem::path& checkpoint);

// Loads the teacher's constants from its trained_weights(). Throws Error(storage) for a checkpoint
// that does not fit.
void load_constants(Executor& executor, const std::filesystem::path& checkpoint);
// Loads parameters and buffers from trained_weights(), to use a trained model without its
// optimizer.
void load_trained(WeightStore& store, const std::filesystem::path& checkpoint);

// One tensor of the checkpointed state, in host memory or read when it is written.
struct TensorCopy {
  std::string name;   // in files: averages have the names of what they average
  std::string state;  // in the executor
  TensorSpec spec;    // in memory
  Role role = Role::parameter;
  const ParameterInfo* info = nullptr;  // how files keep it; nullptr: as memory does
  Executor* live = nullptr;             // nullptr: bytes holds it
  std::vector<std::byte> bytes;
  int owner = 0;  // the rank that writes it; others have no bytes
};
using StateSnapshot = std::vector<TensorCopy>;

// Copies the checkpointed state and reuses the snapshot's memory. The executor must outlive the
// snapshot. `live`: only sharded tensors are copied; the others are read when the snapshot is
// written, and no step may run until then. `rank` of `writers`: the tensors are distributed over
// the writers by size. With sharded tensors all ranks must call this.
void take_snapshot(Executor& executor, StateSnapshot& snapshot, bool live = false, int rank = 0,
                   int writers = 1);
// The greatest number of bytes that a rank copies.
size_t snapshot_bytes(const Executor& executor, int writers = 1);
bool holds_any(const StateSnapshot& snapshot, const std::vector<Role>& roles);
bool has_any(const Executor& executor, const std::vector<Role>& roles);

// Writes the tensors of the given roles and owner under their state names, their axes in the order
// of files.
void save_tensors(const StateSnapshot& snapshot, FileWriter& file, const std::vector<Role>& roles,
                  const SafetensorsMetadata& metadata, int owner = 0);
// Returns whether the checkpoint has the parameters and buffers of this model, by name and shape.
bool has_parameters_of(const Executor& executor, const std::filesystem::path& checkpoint);
// Reads them back from the files of a checkpoint that are called `stem`; every tensor must be
// there, and no other. Throws Error(storage).
void restore_tensors(Executor& executor, const std::filesystem::path& checkpoint,
                     const std::string& stem, const std::vector<Role>& roles);

}  // namespace dltrain
