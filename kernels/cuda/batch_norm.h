// Queues kernels for the norms of paired convolutions (cuda/vendor/cudnn_conv2d_norms.cpp).
#pragma once

#include "cuda/launch.h"

namespace dltrain {

// mean and variance of `rows` values from their sum and the sum of their squares; [channels] in
// f32, computed in double. The difference of two f32 sums loses precision by the factor mean² /
// variance, which is less than the rounding error of 16-bit values (docs/gpu).
void launch_moments_of_sums(int64_t rows, int64_t channels, const float* sum, const float* squares,
                            float* mean, float* variance, CudaStream stream);
// scale = gamma/√(variance + epsilon) and shift = beta − mean·scale: the norm as y = x·scale +
// shift. [channels] in f32.
void launch_norm_as_line(double epsilon, int64_t channels, const float* gamma, const float* beta,
                         const float* mean, const float* variance, float* scale, float* shift,
                         CudaStream stream);

}  // namespace dltrain
