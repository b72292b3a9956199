// Parameters and buffers of an executor or a decoder: initial values, `init_from`, and the weights
// of a trained model.
#pragma once

#include <deque>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/load_tensors.h"
#include "nn/model.h"

namespace dltrain {

// Writes initial values of all parameters and buffers (functions of seed and name).
void initialize_weights(StateStore& store, uint64_t seed);

struct LoadedWeights {
  int loaded = 0;
  std::filesystem::path from;  // the file, or the folder with model.safetensors
  // Name and shape of parameters that the file lacks (strict: false), and of tensors that the model
  // lacks; sentences about parameters of another shape in the file.
  std::vector<std::string> missing, unexpected, reshaped = {};
  std::vector<std::string> not_finite = {};  // parameters with a NaN or an infinity
};

// Finds the parameters in a model.init_from: a file, or a folder (tensor/safetensors_set.h), with
// Hugging Face's names if it has a config.json. Throws Error(storage) for a tensor of another shape
// (naming both), and with `strict` for missing or surplus tensors; buffers may be missing (weights
// are often saved without running statistics). Also throws Error(storage) if no parameter is found.
// `keys`: messages may suggest model.strict and model.rename.
std::vector<FoundTensor> find_weights(const std::vector<ParameterInfo>& parameters,
                                      const SafetensorsSet& files, const TextPairs& rename,
                                      bool strict, LoadedWeights& report, bool keys = true);
// Returns the file or folder of a model.init_from: for a run folder (or its folder `checkpoints`)
// the checkpoint that find_checkpoint() finds, else `path`. A checkpoint is verified.
std::filesystem::path location_of_weights(const std::filesystem::path& path);
// For weights in a folder that export or import wrote: verifies their files as far as they are
// read, finish_verifying() the rest. Other folders have no checksums.
VerifiedFiles verified_weights(const std::filesystem::path& from, const SafetensorsSet& weights);
// Throws Error(storage) for damage.
void finish_verifying(VerifiedFiles& files);
// Opens the result of location_of_weights() and writes the weights into a store; converts f32, f64,
// bf16 and f16. Adapters may be missing.
LoadedWeights load_weights(StateStore& store, const std::filesystem::path& path,
                           const TextPairs& rename, bool strict);

// Writes the adapters of model.lora, and parameters of the base that learn too, from a folder or
// file of peft (lora.init_from). Throws Error(storage) unless it has exactly these, and
// Error(usage) if layers share one that learns.
void load_adapters(StateStore& store, const std::filesystem::path& path);

// Sets the magnitudes of adapters (dora) to the norms of the rows of their weights. All ranks must
// call it.
void start_magnitudes(Executor& executor);

// Sets the averages (role ema) to the values of their parameters, as before the first update.
void start_averages(Executor& executor);

// Opens the weights of a checkpoint that evaluations use: the averages, if it has them, then the
// parameters.
std::deque<SafetensorsSet> trained_weights(const std::filesystem::path& checkpoint);

// Loads parameters and buffers from trained_weights(), to use a trained model without its
// optimizer. `prefix`: what precedes the names of the files in those of the store ("teacher.").
// Throws Error(storage) for a checkpoint that does not fit.
void load_trained(StateStore& store, const std::vector<ParameterInfo>& wanted,
                  const std::filesystem::path& checkpoint, std::string_view prefix = "");

}  // namespace dltrain
