// Queues group_norm over x [samples, places, channels] and its gradient (lib/ops/group_norm.cpp).
// x, y and their gradients have `dtype`: f32, f64, bf16 or f16; everything else its accumulation
// dtype.
#pragma once

#include "cuda/launch.h"
#include "tensor/dtype.h"

namespace dltrain {

struct GroupNormCall {
  DType dtype = DType::f32;
  int64_t samples = 0, places = 0, channels = 0, groups = 1;
  double epsilon = 1e-5;
};

void launch_group_norm(const GroupNormCall& call, const void* x, const void* weight,
                       const void* bias, void* y, void* mean, void* rstd, CudaStream stream);

// Weight and bias may be null, dweight and dbias with them. The workspace has 2·samples·channels
// numbers of the accumulation dtype: each sample's part of dweight and dbias.
void launch_group_norm_backward(const GroupNormCall& call, const void* x, const void* dy,
                                const void* weight, const void* mean, const void* rstd, void* dx,
                                void* dweight, void* dbias, void* workspace, CudaStream stream);

}  // namespace dltrain
