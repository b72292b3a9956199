// Chooses the form of recurrent networks for an engine.
#pragma once

#include <functional>
#include <optional>

#include "graph/graph.h"

namespace dltrain {

// Returns the bytes that the engine's recurrent_network kernel keeps for its backward, or nullopt
// if its parts are as fast (ops/kernel.h, kept_bytes()). The attribute kept_bytes of the request is
// 0. Empty: the engine has no such kernel.
using KeptBytes = std::function<std::optional<int64_t>(const Attributes& attributes,
                                                       SpecSpan inputs, SpecSpan outputs)>;

// Replaces each recurrent_network that the engine does not serve better by its parts: a matmul
// (x·w_ihᵀ + b_ih) and a `recurrent`. The others get the number of bytes that they keep in
// training. Runs before the reverse pass, so that each form has its own gradient. Results of the
// two forms differ in the last bits.
Graph lower_recurrent(Graph graph, const KeptBytes& kept, bool training);

}  // namespace dltrain
