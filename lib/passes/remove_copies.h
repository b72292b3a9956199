// Lets nodes with several results write sums over the micro-steps themselves. A sum must be the
// only result of its node, since kernels add to all their results or none; builders therefore copy
// such a result to the sum (GraphBuilder::accumulate). A plan that only overwrites sums needs no
// copy.
//
//   dx, dw = layer_norm_backward(…); gradient of weight = identity(dw)
//   →  dx, gradient of weight = layer_norm_backward(…)
#pragma once

#include "graph/graph.h"

namespace dltrain {

// For plans without several micro-steps (ProgramOptions::several_micro_steps). With `one_rank`,
// where no other rank's part is added to a sum, others may read the result too (statistics of batch
// norm).
Graph remove_copies(Graph graph, bool one_rank);

}  // namespace dltrain
