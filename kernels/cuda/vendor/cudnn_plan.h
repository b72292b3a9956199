// Convolutions by cuDNN 9's graph API. A plan can be built for a GPU that is only described, so
// that tests/cuda_engine needs no GPU.
#pragma once

#include "cuda/vendor/cudnn_operations.h"
#include "cuda/vendor/cudnn_proposals.h"

namespace dltrain {

// The tensors' identifiers in a variant pack.
namespace cudnn_ids {
inline constexpr int64_t kX = 1, kW = 2, kY = 3;
}  // namespace cudnn_ids

CudnnProposals propose_convolution(const ConvolutionProblem& problem, const CudnnTarget& target);

// Binds the device memory of a convolution's plan, for any pass: image, weights and result of the
// forward, or their gradients.
CudnnDescriptor bind_convolution(void* x, void* w, void* y, void* workspace);

}  // namespace dltrain
