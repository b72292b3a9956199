// Dead-code elimination: removes the nodes whose results nobody wants.
#pragma once

#include "graph/graph.h"

namespace dltrain {

// A node stays when it has an effect of its own, when one of its outputs has a role that outlives
// the micro-step (state, gradients, sums), or when a node that stays reads one of its outputs.
// Everything else goes. What the host wants to read must therefore have such a role.
Graph eliminate_dead_code(Graph graph);

}  // namespace dltrain
