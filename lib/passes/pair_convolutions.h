// Pairs convolutions with the batch norm after them, for engines that have one kernel for both
// (kernels/cuda). Where that kernel is not faster, the engine runs the two steps separately.
#pragma once

#include "graph/graph.h"

namespace dltrain {

// Training: a conv2d and the batch_norm that reads its result become conv2d_moments, which leaves
//   the statistics too, and batch_norm_inference by these. No node is moved, and values keep their
//   ids, so other readers of the convolution's result, mean or variance are not affected.
// Evaluation: a conv2d and the batch_norm_inference that is its only reader become one
//   conv2d_batch_norm at the place of the norm.
//
// Only convolutions without bias and activation, in the norm's phase. Part of fuse()
// (passes/fuse.h); runs after relu and residuals have been fused into norms.
void pair_convolutions(Graph& graph);

}  // namespace dltrain
