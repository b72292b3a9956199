// Along which axis each value of a graph counts the tokens of a text, as layers have emitted it
// (before other passes). Proves on the way that every token is computed from itself and those
// before it alone: only then may a text be continued from what was kept of it.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace dltrain {

inline constexpr int kNoTokenAxis = -1;  // the same for all tokens: parameters, positions

// One entry a value. `tokens`: the ids, [samples, tokens]. Throws Error(usage) with the layer as
// its place where an op brings tokens together in another way than attention and recurrent networks
// with state do.
std::vector<int> token_axes(const Graph& graph, ValueId tokens);

}  // namespace dltrain
