// Reduced precision: rewrites the forward of an f32 graph so that matrix products and the ops
// between them work on bf16 or f16. Runs after emit and before reverse, so that the backward
// follows.
//
// Every op defines its policy (OpDef::autocast). What the loss emits, and what writes state or
// sums, computes in f32, and so do layers that precision.overrides excepts.
//
// Parameters stay f32 masters. An op that needs a parameter in the low dtype reads its copy: state
// of role low_precision named "low_precision of <parameter>", which emit_low_precision_update
// writes once a step and Executor::write_state refreshes with the parameter. Averages of parameters
// (evaluation with training.ema) have no copies: they are cast where they are read.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "passes/precision_config.h"

namespace dltrain {

// Without a layer that computes in 16 bits (PrecisionConfig::low) the graph remains as it is.
// Existing values keep their ids and stay f32; low-precision results are new values. `keep`: values
// that are read from outside the graph and must be computed in f32. With a low residual what
// embeddings make is low too, and with it the residual stream of a transformer.
Graph autocast(Graph graph, const PrecisionConfig& precision, const std::vector<ValueId>& keep);

// Appends the update of the copies of all parameters that the update segment writes.
void emit_low_precision_update(Graph& graph);

}  // namespace dltrain
