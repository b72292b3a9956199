// Tensors of a safetensors file or of .npy files: for research, comparisons with other programs and
// tests.
//
// The first dimension of every tensor counts the samples. Floating-point and u8 inputs become f32
// (u8: pixel values, see scaling), other integers i32. Floating-point targets become f32, all
// integers i32 labels (-100: ignored).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/dataset.h"
#include "data/scaling.h"

namespace dltrain {

struct TensorsOptions {
  std::string path = {};  // of the safetensors file; empty: tensors are .npy files
  // (name of the model's input, name of the tensor in the file, or a .npy file)
  std::vector<std::pair<std::string, std::string>> inputs{{kInputField, kInputField}};
  std::string targets = kTargetField;   // empty: there are none
  std::optional<int64_t> classes = {};  // of labels, which must be below this
  Scaling scaling = {};                 // of f32 inputs
};

// Throws Error(data) naming file, tensor, sample and element.
std::shared_ptr<const Dataset> load_tensors(const TensorsOptions& options);

}  // namespace dltrain
