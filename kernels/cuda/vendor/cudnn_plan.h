// Convolutions, alone and combined with work of the batch norm after them, by cuDNN 9's graph API.
// A plan can be built for a GPU that is only described, so that tests/cuda_engine and
// tests/cuda_attention need no GPU.
#pragma once

#include "cuda/vendor/cudnn_operations.h"
#include "cuda/vendor/cudnn_proposals.h"

namespace dltrain {

// The tensors' identifiers in a variant pack.
namespace cudnn_ids {
inline constexpr int64_t kX = 1, kW = 2, kY = 3;                 // of every convolution
inline constexpr int64_t kSum = 4, kSquares = 5;                 // with sums
inline constexpr int64_t kScale = 6, kShift = 7, kResidual = 8;  // with a norm
}  // namespace cudnn_ids

CudnnProposals propose_convolution(const ConvolutionProblem& problem, const CudnnTarget& target);

// y = x ∗ w, and of each channel the sums of y and of y² in f32. Forward, 16 bits.
CudnnProposals propose_convolution_sums(const ConvolutionProblem& problem,
                                        const CudnnTarget& target);

// Operations after scale and shift.
struct NormEnding {
  bool residual = false, relu = false;
};
// y = (x ∗ w) · scale + shift (+ residual), then relu; scale and shift of each channel in f32.
// There is no rounding between the steps. Forward, 16 bits.
CudnnProposals propose_convolution_norm(const ConvolutionProblem& problem, const NormEnding& ending,
                                        const CudnnTarget& target);

// Binds the device memory of a convolution's plan, for any pass: image, weights and result of the
// forward, or their gradients.
CudnnDescriptor bind_convolution(void* x, void* w, void* y, void* workspace);

}  // namespace dltrain
