// Queues a matrix product by a plain tiled kernel: for what cuBLASLt does not take, and for the
// emulation, where no vendor library runs. f32 or f64.
#pragma once

#include "cuda/launch.h"
#include "shared/elementwise.h"
#include "tensor/dtype.h"

namespace dltrain {

// y[i, j] = activation(Σ a[i, l]·b[l, j] + bias[j]); strides in elements.
struct PlainMatmulCall {
  DType dtype = DType::f32;
  int64_t m = 0, n = 0, k = 0;
  int64_t a_row = 0, a_inner = 0;     // a[i, l] is at i·a_row + l·a_inner
  int64_t b_inner = 0, b_column = 0;  // b[l, j] is at l·b_inner + j·b_column
  ElementwiseOp activation = ElementwiseOp::identity;
  bool accumulate = false;
};

// bias may be nullptr.
void launch_plain_matmul(const PlainMatmulCall& call, const void* a, const void* b,
                         const void* bias, void* y, CudaStream stream);

}  // namespace dltrain
