// Finds the axis along which each value of a graph counts the tokens of a text. The graph is as
// layers emitted it (before other passes). The analysis proves that every token depends on itself
// and earlier tokens only, which decoding with cached state requires.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace dltrain {

// Returns one entry per value. `tokens`: the ids, [samples, tokens]. Throws Error(usage) with the
// layer as its place where an op mixes tokens in another way than attention and recurrent networks
// with state.
std::vector<int> token_axes(const Graph& graph, ValueId tokens);

}  // namespace dltrain
