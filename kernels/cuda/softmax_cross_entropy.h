// Queues softmax-cross-entropy over logits [rows, classes] with i32 targets [rows] and its gradient
// (lib/ops/softmax_cross_entropy.cpp has the formulas). dtype: f32, f64, bf16 or f16, of logits
// and dlogits; log_sum_exp has its accumulation dtype; sums and dloss are f64.
#pragma once

#include "cuda/launch.h"
#include "tensor/dtype.h"

namespace dltrain {

struct CrossEntropyCall {
  DType dtype = DType::f32;
  int64_t rows = 0, classes = 0;
  int64_t ignore_index = -100;
  double label_smoothing = 0, z_loss = 0;
};

// The workspace holds loss and correctness of every row until they are added in row order: doubles.
inline int64_t cross_entropy_workspace_bytes(const CrossEntropyCall& call) {
  return 2 * call.rows * 8;
}

void launch_cross_entropy(const CrossEntropyCall& call, const void* logits, const int32_t* targets,
                          double* loss_sum, void* log_sum_exp, double* correct, double* workspace,
                          CudaStream stream);
// dlogits may be logits.
void launch_cross_entropy_backward(const CrossEntropyCall& call, const void* logits,
                                   const int32_t* targets, const void* log_sum_exp,
                                   const double* dloss, void* dlogits, CudaStream stream);

}  // namespace dltrain
