// Dead-code elimination: removes the nodes whose results are not used.
#pragma once

#include "graph/graph.h"

namespace dltrain {

// Keeps a node if it has a side effect, if an output has a role that outlives the micro-step
// (state, gradients, sums) or is Role::output, or if a kept node reads one of its outputs. Values
// that the host reads must therefore have such a role.
Graph eliminate_dead_code(Graph graph);

}  // namespace dltrain
