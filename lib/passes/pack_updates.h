// Packs the updates of many parameters into one call. The optimizer, the rounding to low-precision
// copies and the averages are one node a tensor, which other passes can treat one by one; kernels
// take all tensors at once, because a launch for each would cost more than its work.
#pragma once

#include "graph/graph.h"

namespace dltrain {

// Packs nodes of one op whose attributes differ at most in what belongs to a tensor: learning rate
// and decay, random stream, whether it has a copy (lib/ops/update.cpp). Runs last.
Graph pack_updates(Graph graph);

}  // namespace dltrain
