// Reduced precision: rewrites the forward of an f32 graph so that matrix products and what lies
// between them work on bf16 or f16. Runs after emit and before reverse, so that the backward
// follows.
//
// What becomes of an op stands in one table (autocast_policy.cpp):
//   low           every floating input in the low dtype (matmul, conv2d)
//   f32           every floating input in f32 (losses, exp, log); all other ops too, and every op
//                 that the loss emits or that writes state or sums
//   follow        low when all activations among its inputs are (activations, add, reshape,
//   pooling) follow_first  likewise by its first input alone; the others keep f32 (norms, whose
//   scales and
//                 statistics are f32; reductions, whose result is)
//
// Averages of parameters (evaluation with training.ema) have no copies: they are cast where they
// are read. Parameters stay f32 masters. Where a low input is a parameter, it is the parameter's
// copy: state of role low_precision named "low_precision.<parameter>", which
// emit_low_precision_update writes once a step and Executor::write_state refreshes with the
// parameter.
#pragma once

#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace dltrain {

enum class CastPolicy : uint8_t { f32, low, follow, follow_first };
CastPolicy cast_policy(std::string_view op);

// `dtype`: bf16 or f16. Values keep their ids and their f32 meaning: what becomes low is a new
// value. `keep`: values that are read from outside and must be there in f32.
Graph autocast(Graph graph, DType dtype, const std::vector<ValueId>& keep);

// Appends the update of the copies of all parameters that the update segment writes.
void emit_low_precision_update(Graph& graph);

// The name of a parameter's copy.
std::string low_precision_name(std::string_view parameter);

}  // namespace dltrain
