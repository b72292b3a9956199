// Queues direct convolutions by plain kernels: for what cuDNN has no engine for, and for the
// emulation. Shapes and attributes are those of lib/ops/conv2d.cpp; f32 or f64.
#pragma once

#include "cuda/launch.h"
#include "shared/elementwise.h"
#include "tensor/dtype.h"

namespace dltrain {

struct PlainConv2dCall {
  DType dtype = DType::f32;
  int64_t samples = 0;
  int64_t in[3] = {}, out[3] = {};  // height, width, channels
  int64_t kernel[2] = {}, stride[2] = {}, padding[2] = {}, dilation[2] = {};
  int64_t groups = 1;
  ElementwiseOp activation = ElementwiseOp::identity;  // of the forward
};

// y = activation(x ∗ w + bias); bias may be nullptr.
void launch_plain_conv2d(const PlainConv2dCall& call, const void* x, const void* w,
                         const void* bias, void* y, CudaStream stream);
void launch_plain_conv2d_input(const PlainConv2dCall& call, const void* dy, const void* w, void* dx,
                               bool accumulate, CudaStream stream);
void launch_plain_conv2d_weight(const PlainConv2dCall& call, const void* dy, const void* x,
                                void* dw, bool accumulate, CudaStream stream);

}  // namespace dltrain
