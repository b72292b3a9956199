// Queues softmax and log_softmax along rows of [rows, columns] and their gradients
// (lib/ops/softmax.cpp has the formulas). dtype: f32, f64, bf16 or f16. An output may be an input.
#pragma once

#include "cuda/launch.h"
#include "tensor/dtype.h"

namespace dltrain {

struct SoftmaxCall {
  DType dtype = DType::f32;
  int64_t rows = 0, columns = 0;
  bool logarithm = false;  // log_softmax
};

void launch_softmax(const SoftmaxCall& call, const void* x, void* y, CudaStream stream);
void launch_softmax_backward(const SoftmaxCall& call, const void* y, const void* dy, void* dx,
                             CudaStream stream);

}  // namespace dltrain
