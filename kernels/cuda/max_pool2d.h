// Queues max pooling over images [N, H, W, C] and its gradient (lib/ops/max_pool2d.cpp).
#pragma once

#include "cuda/launch.h"
#include "tensor/dtype.h"

namespace dltrain {

struct MaxPoolCall {
  DType dtype = DType::f32;  // f32, f64, bf16 or f16
  int64_t samples = 0, channels = 0;
  int64_t in[2] = {}, out[2] = {};  // height, width
  int64_t kernel[2] = {}, stride[2] = {}, padding[2] = {};
};

void launch_max_pool2d(const MaxPoolCall& call, const void* x, void* y, uint8_t* position,
                       CudaStream stream);
void launch_max_pool2d_backward(const MaxPoolCall& call, const void* dy, const uint8_t* position,
                                void* dx, CudaStream stream);

}  // namespace dltrain
