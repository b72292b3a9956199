// Convolutions by cuDNN 9's graph API. A plan can be built for a GPU that is only described, so
// that tests/cuda_engine needs no GPU.
#pragma once

#include <cstdint>

#include "cuda/vendor/cudnn_proposals.h"

namespace dltrain {

enum class ConvolutionPass : uint8_t { forward, input, weight };

// Extents as lib/ops/conv2d.cpp names them; images are NHWC, weights [out, height, width, in].
struct ConvolutionProblem {
  ConvolutionPass pass = ConvolutionPass::forward;
  DType dtype = DType::f32;  // of all three tensors: f32, bf16 or f16; sums are f32
  bool tf32 = false;         // products of f32 on tensor cores
  int64_t samples = 0;
  int64_t in[2] = {}, out[2] = {};  // height, width
  int64_t in_channels = 0, out_channels = 0, groups = 1;
  int64_t kernel[2] = {}, stride[2] = {}, padding[2] = {}, dilation[2] = {};
};

CudnnProposals propose_convolution(const ConvolutionProblem& problem, const CudnnTarget& target);

// Binds the device memory of a convolution's plan, for any pass: image, weights and result of the
// forward, or their gradients. `workspace` may be nullptr if the plan needs none.
CudnnDescriptor bind_convolution(void* x, void* w, void* y, void* workspace);

}  // namespace dltrain
