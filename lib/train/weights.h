// Parameters and buffers between an executor and safetensors files: initial values, `init_from`,
// and the files of a checkpoint.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "nn/model.h"
#include "tensor/safetensors.h"
#include "tensor/safetensors_set.h"
#include "train/executor.h"

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
// Finds the parameters in a model.init_from: a file, or a folder (tensor/safetensors_set.h), whose
// names are those of Hugging Face's model where a config.json says so. Throws Error(storage) for a
// tensor of another shape (naming both), and with `strict` for missing or surplus tensors; buffers
// may be missing either way (weights are often saved without running statistics). Where no
// parameter is found at all that is an Error(storage) without `strict` too. `keys`: whether a
// configuration's model.strict and model.rename may be advised.
std::vector<FoundWeight> find_weights(const std::vector<ParameterInfo>& parameters,
                                      const SafetensorsSet& files, const TextPairs& rename,
                                      bool strict, LoadedWeights& report, bool keys = true);
// Where the weights of a model.init_from lie: of a run folder (or its folder `checkpoints`) in the
// checkpoint that find_checkpoint() finds, else in `path` itself. A checkpoint is verified.
std::filesystem::path place_of_weights(const std::filesystem::path& path);
// Opens the file or folder that place_of_weights() says and writes them into a store; f32, f64,
// bf16 and f16 are converted.
LoadedWeights load_weights(WeightStore& store, const std::filesystem::path& path,
                           const TextPairs& rename, bool strict);

// Averages (role ema) as they are before the first update: what they average.
void start_averages(Executor& executor);

// Fills the teacher's constants from its checkpoint: from the averages where it has some, which are
// what its evaluation used. Throws Error(storage) for a checkpoint that does not fit.
void load_constants(Executor& executor, const std::filesystem::path& checkpoint);
// Fills parameters and buffers likewise, for those who only use a trained model.
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

// Copies everything that a checkpoint keeps; the snapshot's memory is used again where it fits. The
// executor must outlive the snapshot. `live`: nothing is copied (but what ranks hold in parts);
// whoever writes the snapshot reads tensor by tensor, and no step may run until then.
// `rank` of `writers`: who has the bytes of which tensor is dealt by their size. Where ranks hold
// tensors in parts all of them must call this.
void take_snapshot(Executor& executor, StateSnapshot& snapshot, bool live = false, int rank = 0,
                   int writers = 1);
// Bytes of a copy, of the rank that has most to write.
size_t snapshot_bytes(const Executor& executor, int writers = 1);
bool holds_any(const StateSnapshot& snapshot, const std::vector<Role>& roles);
bool has_any(const Executor& executor, const std::vector<Role>& roles);

// Writes the tensors of the given roles and owner under their state names, their axes in the order
// of files.
void save_tensors(const StateSnapshot& snapshot, FileWriter& file, const std::vector<Role>& roles,
                  const SafetensorsMetadata& metadata, int owner = 0);
// Reads them back from the files of a checkpoint that are called `stem`; every tensor must be
// there, and no other. Throws Error(storage).
void restore_tensors(Executor& executor, const std::filesystem::path& checkpoint,
                     const std::string& stem, const std::vector<Role>& roles);

}  // namespace dltrain
