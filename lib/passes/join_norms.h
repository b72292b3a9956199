// Joins layer_norm, rms_norm and their gradients with the passes over memory around them, for
// engines whose kernels do all in one (lib/ops/layer_norm.cpp):
//
//   forward   x = add(a, b); y, mean, rstd = layer_norm(x, …); y16 = cast(y)
//          →  y16, mean, rstd, x [, y] = layer_norm(a, …, b)
//   backward  dx = layer_norm_backward(x, cast(dy16), …); s = add(r, dx); s16 = cast(s)
//          →  s, …, s16 = layer_norm_backward(x, dy16, …, r)
//
// Any of the three parts may be missing. The residual addition moves to the norm that reads its
// sum; with `across_blocks` false only within a block (Node::block), as recomputation needs.
#pragma once

#include "graph/graph.h"

namespace dltrain {

void join_norms(Graph& graph, bool across_blocks);

}  // namespace dltrain
