// Finds layers in which a token depends on later tokens: attention that is not causal, recurrent
// networks that run from the last token to the first. Where the target of each token is the next
// token of that input, such a model sees what it has to predict.
#pragma once

#include <string>

#include "graph/graph.h"

namespace dltrain {

// Returns the path of the first such layer whose keys (or inputs) depend on `tokens`, or "".
// Attention to another input, as from a decoder to its source, does not count. Other ops that mix
// tokens (means over tokens, transposes) are not checked.
std::string layer_of_later_tokens(const Graph& graph, ValueId tokens);

}  // namespace dltrain
