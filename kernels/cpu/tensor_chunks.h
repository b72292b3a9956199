// Cuts lists of tensors of unequal sizes into pieces of about equal work for the threads. The cuts
// depend on the sizes only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "tensor/shape.h"

namespace dltrain {

struct TensorChunk {
  size_t tensor;
  int64_t begin, count;  // elements
};

inline constexpr int64_t kTensorChunk = 8192;  // elements: 32 KiB of f32

inline std::vector<TensorChunk> chunk_tensors(std::span<const TensorSpec> tensors) {
  std::vector<TensorChunk> chunks;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t count = tensors[i].shape.elements();
    for (int64_t at = 0; at < count; at += kTensorChunk) {
      chunks.push_back({i, at, std::min(kTensorChunk, count - at)});
    }
  }
  return chunks;
}

}  // namespace dltrain
