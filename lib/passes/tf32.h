// TF32: marks the ops with products of f32 operands whose layers compute in TF32 (attribute
// `math: tf32`, ops/rules.h). Changes no shape and no value but the kernels' operands. Runs after
// emit, so that kernels are chosen for the attribute, and again after the passes that emit the
// parts of recurrent networks, ops of the backward and of the communication between ranks.
#pragma once

#include "graph/graph.h"
#include "passes/precision_config.h"

namespace dltrain {

// Returns whether any op is marked. Products that must be exact (attribute full_precision: the
// routers of experts) are not.
bool mark_tf32(Graph& graph, const PrecisionConfig& precision);

}  // namespace dltrain
