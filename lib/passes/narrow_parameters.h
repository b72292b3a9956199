// Parameters in bf16 without f32 masters (precision.parameters: bf16). Runs after the update
// segment is there, in training, evaluation and decoding alike.
//
// A parameter that nothing but its low-precision copy is made from becomes that copy: state of role
// parameter under the parameter's name, which the optimizer's op reads, updates in f32 and rounds
// at random (lib/ops/update.cpp, attribute `rounding`). The others, which some op reads in f32
// (scales of norms, biases, embedding tables), stay f32 as they are, tied ones with their copies.
#pragma once

#include "graph/graph.h"

namespace dltrain {

// After autocast and emit_low_precision_update, before anything cuts or merges updates. The
// optimizer must be one whose elements are independent (OpDef::independent_elements).
Graph narrow_parameters(Graph graph);

}  // namespace dltrain
