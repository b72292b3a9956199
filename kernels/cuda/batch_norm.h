// Queues batch normalisation over x [rows, channels] and its gradient. x, y, the residual and their
// gradients have `dtype`: f32, f64, bf16 or f16; gamma, beta, statistics and their gradients its
// accumulation dtype. Statistics are joined from fixed chunks of rows, in a fixed order.
#pragma once

#include "cuda/launch.h"
#include "tensor/dtype.h"

namespace dltrain {

struct BatchNormCall {
  DType dtype = DType::f32;
  int64_t rows = 0, channels = 0;
  double epsilon = 1e-5;
  bool relu = false;
};

// Elements of the accumulation dtype that forward and backward need.
int64_t batch_norm_workspace_elements(const BatchNormCall& call);

// residual: nullptr when there is none.
void launch_batch_norm(const BatchNormCall& call, const void* x, const void* gamma,
                       const void* beta, const void* residual, void* y, void* mean, void* variance,
                       void* workspace, CudaStream stream);
// beta: read with relu only.
void launch_batch_norm_backward(const BatchNormCall& call, const void* x, const void* dy,
                                const void* gamma, const void* beta, const void* mean,
                                const void* variance, void* dx, void* dgamma, void* dbeta,
                                void* workspace, CudaStream stream);
// Also the last step of launch_batch_norm. residual: nullptr when there is none; y may be x.
void launch_batch_norm_inference(const BatchNormCall& call, const void* x, const void* gamma,
                                 const void* beta, const void* residual, const void* mean,
                                 const void* variance, void* y, CudaStream stream);
// Also the first step of launch_batch_norm.
void launch_batch_norm_statistics(const BatchNormCall& call, const void* x, void* mean,
                                  void* variance, void* workspace, CudaStream stream);

// mean and variance of `rows` values from their sum and the sum of their squares; [channels] in
// f32, computed in double. The difference of two sums in f32 loses what mean² is larger than the
// variance: that is below what the values lose themselves where they have 16 bits (docs/gpu).
void launch_moments_of_sums(int64_t rows, int64_t channels, const float* sum, const float* squares,
                            float* mean, float* variance, CudaStream stream);
// scale = gamma/√(variance + epsilon) and shift = beta − mean·scale: the norm as y = x·scale +
// shift. [channels] in f32.
void launch_norm_as_line(double epsilon, int64_t channels, const float* gamma, const float* beta,
                         const float* mean, const float* variance, float* scale, float* shift,
                         CudaStream stream);

}  // namespace dltrain
