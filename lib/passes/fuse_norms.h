// Fuses batch norm with the relu and residual after it, which saves passes over memory.
#pragma once

#include "graph/graph.h"

namespace dltrain {

// Forward: relu(batch_norm(x)) and relu(batch_norm(x) + residual) become one batch_norm with
//   activation=relu (and a fourth input), if the intermediate values have no other reader and the
//   residual is computed before the norm.
// Backward: batch_norm_backward of the relu_backward of such a y becomes one
//   batch_norm_backward with activation=relu, if the gradient between has no other reader. Only
//   without a residual: the residual also needs the gradient of the sum.
//
// Part of fuse() (passes/fuse.h), whose rules about phases and results hold here too.
void fuse_norms(Graph& graph);

}  // namespace dltrain
