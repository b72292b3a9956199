// Queues elementwise_loss and weighted_cross_entropy with their gradients (lib/ops has the
// formulas). dtype: f32 or f64 of outputs and floating targets; sums and dloss are f64.
#pragma once

#include "cuda/launch.h"
#include "shared/losses.h"
#include "tensor/dtype.h"

namespace dltrain {

struct ElementwiseLossCall {
  DType dtype = DType::f32;
  LossKind kind = LossKind::mse;
  int64_t count = 0;
  double delta = 1;
  int64_t positives = 0;  // weights of positive targets in `positive`, which repeat; 0: all 1
};

// Doubles: loss and right answers of each block, until they are added in order.
int64_t elementwise_loss_workspace(const ElementwiseLossCall& call);

// `correct` may be nullptr. `positive`: device memory, f64.
void launch_elementwise_loss(const ElementwiseLossCall& call, const void* x, const void* t,
                             const double* positive, double* loss, double* correct,
                             double* workspace, CudaStream stream);
void launch_elementwise_loss_backward(const ElementwiseLossCall& call, const void* x, const void* t,
                                      const double* positive, const double* dloss, void* dx,
                                      CudaStream stream);

struct WeightedCrossEntropyCall {
  DType dtype = DType::f32;
  int64_t rows = 0, classes = 0;
  bool labels = false;  // targets are i32, not distributions
  bool relative = false;
  double smoothing = 0, scale = 1;
};

// `weights` (f64, device memory) and `mask` (labels beside distributions) may be nullptr. The
// workspace has 2·rows doubles.
void launch_weighted_cross_entropy(const WeightedCrossEntropyCall& call, const void* logits,
                                   const void* targets, const int32_t* mask, const double* weights,
                                   double* loss, void* log_sum_exp, double* correct,
                                   double* workspace, CudaStream stream);
void launch_weighted_cross_entropy_backward(const WeightedCrossEntropyCall& call,
                                            const void* logits, const void* targets,
                                            const int32_t* mask, const double* weights,
                                            const void* log_sum_exp, const double* dloss,
                                            void* dlogits, CudaStream stream);

}  // namespace dltrain
