// Batch norm with what follows it: fewer passes over memory.
#pragma once

#include "graph/graph.h"

namespace dltrain {

// Forward: relu(batch_norm(x)) and relu(batch_norm(x) + residual) become one batch_norm with
//   activation=relu (and a fourth input), where nobody else reads what lies between and the
//   residual is there before the norm.
// Backward: batch_norm_backward of what relu_backward of such a y gives becomes one
//   batch_norm_backward with activation=relu, where nobody else reads the gradient between. Only
//   without a residual: the gradient behind a sum is wanted by its other side too.
//
// `given`: the forward of batch_norm_inference too.
//
// Part of fuse() (passes/fuse.h), whose rules about phases and results hold here too.
void fuse_norms(Graph& graph, bool given = false);

}  // namespace dltrain
