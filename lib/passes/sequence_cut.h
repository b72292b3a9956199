// Sequence parallelism (Korthikanti et al. 2022, "Reducing Activation Recomputation in Large
// Transformer Models"): between the products that the ranks along `tensor` share, each of them has
// its rows only (samples, or tokens of each sample) of what tensor parallelism replicates: residual
// stream, norms, dropout.
//
// cut_sequence() runs on a forward after partition(). The sum of partial results becomes a
// reduce-scatter of rows (scatter_tokens, ops/placement.cpp), and where shards of layers read
// values of which a rank has rows, these are gathered (gather_tokens): together the messages have
// as many bytes as the sums had. Ops that work row by row (OpDef::place) run on rows in between,
// with gradients of their parameters that are summed over the ranks; others gather what they read.
// Gathered rows are not kept for the backward but gathered again (passes/recompute.h).
#pragma once

#include <span>

#include "passes/partition.h"

namespace dltrain {

// Returns the number of sums that have become reduce-scatters. `kept`: see partition().
int cut_sequence(Graph& graph, const PartitionOptions& options, std::span<ValueId* const> kept);

}  // namespace dltrain
