// Convolutions, alone and with what belongs to the batch norm behind them, by cuDNN 9's graph API.
// A plan can be built for a GPU that is only described, which is how tests/cuda_engine and
// tests/cuda_attention check them without one.
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

// What follows scale and shift.
struct NormEnding {
  bool residual = false, relu = false;
};
// y = (x ∗ w) · scale + shift (+ residual), then relu; scale and shift of each channel in f32.
// Between the steps nothing is rounded. Forward, 16 bits.
CudnnProposals propose_convolution_norm(const ConvolutionProblem& problem, const NormEnding& ending,
                                        const CudnnTarget& target);

// The device memory with which a plan of any pass of a convolution alone runs: image, weights and
// result of the forward, or their gradients.
CudnnDescriptor bind_convolution(void* x, void* w, void* y, void* workspace);

}  // namespace dltrain
