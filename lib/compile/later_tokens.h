// Which layer of a forward lets a token of an input look at tokens behind it: attention that is not
// causal, a recurrent network that runs from the last token to the first. Where each token's target
// is the next token of that input, such a model sees what it is to predict.
#pragma once

#include <string>

#include "graph/graph.h"

namespace dltrain {

// The path of the first such layer whose keys (or inputs) are made of `tokens`; "": there is none.
// Attention to another input, as of a decoder to its source, is none. Other ops that bring tokens
// together (means over tokens, matrices transposed) are not looked at.
std::string layer_of_later_tokens(const Graph& graph, ValueId tokens);

}  // namespace dltrain
