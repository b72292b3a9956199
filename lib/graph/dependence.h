// What the values of a graph are made of.
#pragma once

#include <span>
#include <vector>

#include "graph/graph.h"

namespace dltrain {

// By value: whether it is one of `sources` or a node made it of them, directly or not.
std::vector<bool> made_of(const Graph& graph, std::span<const ValueId> sources);

// The same question about one value: the nodes before it are walked, not all.
bool is_made_of(const Graph& graph, ValueId value, ValueId source);

}  // namespace dltrain
