// Queues copies of boxes between dense tensors of any dtype, for slice, pad, concat and transpose.
#pragma once

#include "cuda/launch.h"

namespace dltrain {

// y[y_start + Σ place·y_stride] = x[x_start + Σ place·x_stride] for every index within `extent`.
struct StridedCopy {
  static constexpr int kMaxRank = 8;
  int element_bytes = 4;  // 1, 2, 4, 8 or 16
  int rank = 0;
  int64_t extent[kMaxRank] = {};
  int64_t x_stride[kMaxRank] = {}, y_stride[kMaxRank] = {};  // in elements
  int64_t x_start = 0, y_start = 0;

  int64_t count() const {
    int64_t product = 1;
    for (int i = 0; i < rank; ++i) product *= extent[i];
    return product;
  }
};

// Returns the same copy with adjacent axes merged and wider elements where possible.
StridedCopy simplified(const StridedCopy& copy);

// Uses narrower elements if x or y is not aligned to those of the copy.
void launch_strided_copy(StridedCopy copy, const void* x, void* y, CudaStream stream);

// y[i] = the low `element_bytes` bytes of `bits` (1, 2, 4 or 8).
void launch_fill(int element_bytes, uint64_t bits, void* y, int64_t count, CudaStream stream);

}  // namespace dltrain
