// The parameters and buffers of layers: name, shape, initial value, and the mapping of a tensor of
// a checkpoint file to memory.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "nn/initializer.h"
#include "tensor/weight_codes.h"

namespace dltrain {

// Files have PyTorch's order of axes, memory that of the kernels. The tensor in the file has shape
// `shape`; axis i of memory is axis permutation[i] of the file.
struct FileLayout {
  Shape shape;
  std::vector<int> permutation;  // empty: the same order
  bool in_first = false;         // a matrix [in, out]; other weights are [out, in, …]
  bool stacked = false;          // a matrix [out, in] for each expert: [experts, out, in]
};

// Tells whether a parameter learns (model.lora).
enum class Adaptation : uint8_t {
  own,      // yes, unless it is frozen by a key
  frozen,   // no: the adapters learn instead
  adapter,  // a parameter of an adapter
};

struct ParameterInfo {
  std::string name;             // "layers.0.weight"
  TensorSpec spec;              // in memory
  Role role = Role::parameter;  // or buffer
  Initializer initializer;
  FileLayout file;
  Adaptation adaptation = Adaptation::own;
  // The format in which state keeps a frozen matrix (passes/frozen_base.h). `spec` is that of the
  // weight.
  WeightCodes codes = {};
  bool shared = false;  // by another layer (`share`), such as that of a tied embedding
};

// Returns the names of the parameters that model.lora freezes.
std::set<std::string> frozen_parameters(const std::vector<ParameterInfo>& parameters);

// Returns the name of a part of a stacked tensor (nn/huggingface/families.h).
inline std::string part_name(std::string_view name, int64_t part) {
  return std::string(name).append("[").append(std::to_string(part)).append("]");
}

// Converts f32 elements from file order to memory order, and back. Sizes must agree with `info`.
void file_to_memory(const ParameterInfo& info, std::span<const float> file,
                    std::span<float> memory);
void memory_to_file(const ParameterInfo& info, std::span<const float> memory,
                    std::span<float> file);

}  // namespace dltrain
