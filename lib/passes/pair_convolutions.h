// Convolutions with what belongs to the batch norm behind them, for engines that have one kernel
// for both (kernels/cuda): where the kernel is no faster than two steps, the engine runs the two
// steps.
#pragma once

#include "graph/graph.h"

namespace dltrain {

// Training: a conv2d and the batch_norm that reads its result become conv2d_moments, which leaves
//   the statistics too, and batch_norm_inference by these. Nothing is moved, and the values keep
//   their ids: whoever reads the convolution's result, mean or variance goes on doing so.
// Evaluation: a conv2d and the batch_norm_inference that alone reads its result become one
//   conv2d_batch_norm in the place of the norm.
//
// Only convolutions without bias and activation, in the norm's phase. Part of fuse()
// (passes/fuse.h), after the norms have taken over relu and residuals.
void pair_convolutions(Graph& graph);

}  // namespace dltrain
