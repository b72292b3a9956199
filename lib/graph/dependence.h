// Data dependences between the values of a graph.
#pragma once

#include <span>
#include <vector>

#include "graph/graph.h"

namespace dltrain {

// Returns for each value if it is one of `sources` or depends on one, directly or indirectly.
std::vector<bool> reachable_from(const Graph& graph, std::span<const ValueId> sources);

}  // namespace dltrain
