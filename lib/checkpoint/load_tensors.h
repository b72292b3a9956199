// Loads tensors of safetensors files into an executor or a decoder.
#pragma once

#include <string>
#include <vector>

#include "base/verified_files.h"
#include "runtime/executor.h"
#include "tensor/safetensors_set.h"

namespace dltrain {

// A tensor of a file and the tensor of the store that gets its values. The files must stay open.
struct FoundTensor {
  SafetensorsSet::Tensor source;
  std::string name = {};                // in the store
  const ParameterInfo* info = nullptr;  // the order in files; nullptr: that of memory
  // The index among the parts of a tensor along its first axis; −1: the whole. All parts
  // must be found.
  int64_t part = -1;
};

// Reads the tensors in the order of their bytes, and of each only what the store keeps; a tensor
// whose axes or dtype differ in memory is read in full. `files`: the folder of the tensors' files.
// `not_finite`: gets the names of tensors with a NaN or an infinity.
void load_tensors(StateStore& store, std::vector<FoundTensor> tensors, VerifiedFiles& files,
                  std::vector<std::string>* not_finite = nullptr);

// Writes f32 values in the order of files, or of memory without a permutation; rounds them to codes
// where the store keeps these (ParameterInfo::codes).
void write_values(StateStore& store, const ParameterInfo& info, std::string_view name,
                  std::span<const float> file);

}  // namespace dltrain
