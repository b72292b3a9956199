// Convolutions by cuDNN 9's graph API. A plan can be built for a GPU that is only described, so
// that tests/cuda_engine needs no GPU.
#pragma once

#include <cstdint>

#include "cuda/vendor/cudnn_proposals.h"
#include "ops/conv2d.h"

namespace dltrain {

enum class ConvolutionPass : uint8_t { forward, input, weight };

// Images are NHWC, weights [out, height, width, in].
struct ConvolutionProblem : Conv2dSizes {
  ConvolutionPass pass = ConvolutionPass::forward;
  DType dtype = DType::f32;  // of all three tensors: f32, bf16 or f16; sums are f32
  bool tf32 = false;         // products of f32 on tensor cores
};

CudnnProposals propose_convolution(const ConvolutionProblem& problem, const CudnnTarget& target);

// Binds the device memory of a convolution's plan, for any pass: image, weights and result of the
// forward, or their gradients. `workspace` may be nullptr if the plan needs none.
CudnnDescriptor bind_convolution(void* x, void* w, void* y, void* workspace);

}  // namespace dltrain
