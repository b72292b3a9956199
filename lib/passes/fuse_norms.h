// Fuses norms with what surrounds them, which saves passes over memory. Parts of fuse()
// (passes/fuse.h), whose rules about phases and results hold here too.
#pragma once

#include "graph/graph.h"

namespace dltrain {

// Batch norm with the relu and residual after it.
//
// Forward: relu(batch_norm(x)) and relu(batch_norm(x) + residual) become one batch_norm with
//   activation=relu (and a fourth input), if the intermediate values have no other reader and the
//   residual is computed before the norm.
// Backward: batch_norm_backward of the relu_backward of such a y becomes one
//   batch_norm_backward with activation=relu, if the gradient between has no other reader. Only
//   without a residual: the residual also needs the gradient of the sum.
void fuse_norms(Graph& graph);

// Joins layer_norm, rms_norm and their gradients with the passes over memory around them, for
// engines whose kernels do all in one (lib/ops/layer_norm.cpp):
//
//   forward   x = add(a, b); y, mean, rstd = layer_norm(x, …); y16 = cast(y)
//          →  y16, mean, rstd, x [, y] = layer_norm(a, …, b)
//   backward  dx = layer_norm_backward(x, cast(dy16), …); s = add(r, dx); s16 = cast(s)
//          →  s, …, s16 = layer_norm_backward(x, dy16, …, r)
//             dy = add(r, cast(dy16)); dx = layer_norm_backward(x, dy, …)
//          →  dx, … = layer_norm_backward(x, dy16, …, r) {adds_to_dy}
//
// Any of the parts may be missing. The residual addition moves to the norm that reads its
// sum; with `across_blocks` false only within a block (Node::block), as recomputation needs.
void join_norms(Graph& graph, bool across_blocks);

}  // namespace dltrain
