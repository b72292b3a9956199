// Queues element-wise kernels. Operands a and b (b only for binary ops) and the output y have the
// same dtype: f32, f64, bf16 or f16. y may be a or b itself.
#pragma once

#include "cuda/launch.h"
#include "cuda/strided.h"
#include "shared/elementwise.h"
#include "tensor/dtype.h"

namespace dltrain {

struct ElementwiseCall {
  ElementwiseOp op = ElementwiseOp::identity;
  DType dtype = DType::f32;
  double p = 0, q = 0;      // the op's numbers (ops/elementwise.h)
  bool accumulate = false;  // y += f(a, b)
};

// All operands have `count` elements, one after the other.
void launch_elementwise(const ElementwiseCall& call, const void* a, const void* b, void* y,
                        int64_t count, CudaStream stream);

// Operands that repeat along axes of extent 1.
void launch_broadcast(const ElementwiseCall& call, const StridedLayout& layout, const void* a,
                      const void* b, void* y, CudaStream stream);

// y[row, column] = op(y[row, column] + bias[column]) in place: what a matmul or convolution ends
// with where the vendor's own epilogue has no such form. bias may be nullptr.
void launch_bias_activation(ElementwiseOp op, DType dtype, const void* bias, void* y, int64_t rows,
                            int64_t columns, CudaStream stream);

// y = x in another dtype, or y += x. Floating values become integers by truncation, as in C.
void launch_cast(DType from, DType to, const void* x, void* y, int64_t count, CudaStream stream,
                 bool accumulate = false);

// The program of a fused_elementwise op, as kernels read it. Operands 0 … inputs−1 are the inputs,
// later numbers are earlier steps.
struct FusedCall {
  static constexpr int kMaxInputs = 16, kMaxSteps = 64, kMaxResults = 16;
  struct Step {
    ElementwiseOp op;
    uint8_t a, b;
    double p, q;
  };
  int inputs = 0, steps = 0, results = 0;
  // Of every tensor, unless `mixed`: then dtypes[i] of input i, and `dtype` of the results.
  DType dtype = DType::f32;
  bool mixed = false;
  DType dtypes[kMaxInputs];
  Step step[kMaxSteps];
  uint8_t result[kMaxResults];  // the operand that output i is
  const void* input[kMaxInputs];
  void* output[kMaxResults];
};

void launch_fused(const FusedCall& call, int64_t count, CudaStream stream);

}  // namespace dltrain
