// Parameters in bf16 without f32 masters (precision.parameters: bf16). Runs after the update
// segment is there, in training, evaluation and decoding alike.
//
// A parameter that is read only to make its low-precision copy is replaced by that copy: state of
// role parameter under the parameter's name, which the optimizer's op reads, updates in f32 and
// rounds stochastically (lib/ops/update.cpp, attribute `rounding`). Parameters that some op reads
// in f32 (scales of norms, biases, embedding tables) stay f32, tied ones with their copies.
#pragma once

#include <set>
#include <string>

#include "graph/graph.h"

namespace dltrain {

// Runs after autocast and emit_low_precision_update, before passes that split or merge updates.
// Requires an optimizer with OpDef::independent_elements for parameters that learn. `only`: the
// names of those that may be replaced (the frozen ones, with model.lora.base: bf16); null: all.
Graph narrow_parameters(Graph graph, const std::set<std::string>* only = nullptr);

}  // namespace dltrain
