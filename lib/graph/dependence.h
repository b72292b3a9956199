// Data dependences between the values of a graph.
#pragma once

#include <span>
#include <vector>

#include "graph/graph.h"

namespace dltrain {

// Returns for each value if it is one of `sources` or depends on one, directly or indirectly.
std::vector<bool> reachable_from(const Graph& graph, std::span<const ValueId> sources);

// Returns true if `value` is `source` or depends on it. Visits only the ancestors of `value`.
bool depends_on(const Graph& graph, ValueId value, ValueId source);

}  // namespace dltrain
