// Data parallelism: every rank runs the same graph on its own micro-batches. Sums over a step
// (gradients, batch statistics, metrics) are reduced over the ranks before the update reads them.
// With a fixed order this pass also combines the micro-steps of a rank.
#pragma once

#include <cstddef>
#include <string>

#include "graph/builder.h"

namespace dltrain {

struct DataParallelOptions {
  int ranks = 1;
  std::string over = {};  // their axes (Mesh::over); empty: all ranks of the run
  // Target size of a reduction message: large enough to use the link well, small enough that most
  // messages are sent while the backward still runs. A tensor is never split.
  size_t bucket_bytes = size_t{25} << 20;
  bool gradients = true;            // false: another pass reduces them (passes/zero.h)
  DType reduce_dtype = DType::f32;  // bf16: f32 gradients are sent as bf16
  // training.reduction: fixed. Sums are added as one binary tree over the micro-batches of the
  // global batch (ops/tree_sum.cpp). With several ranks micro_steps must be a power of two.
  // Micro-steps of the plan must overwrite sums (PlanOptions::several_micro_steps false).
  bool fixed = false;
  int64_t micro_steps = 1, micro_batch = 1;  // of a rank and step; its samples
};

// Adds the reductions. Returns the graph unchanged with one rank (and one micro-step, or without a
// fixed order).
//
// A bucket contains sums of one role and dtype that are adjacent in the StateLayout (ascending
// value ids), so it is one range of memory. Its all_reduce_begin is right after the last node that
// writes one of its members and runs in the last micro-step only; its all_reduce_end is at the
// start of the update, whose nodes then read the reduced sums. In a graph without an update
// (evaluation) the ends come last. Slots number the buckets in the order in which they begin, which
// is the same on all ranks. With a fixed order a bucket's tree_sum precedes its begin, and runs in
// every micro-step. Gradients sent as bf16 are rounded once per rank, before their begin; the f32
// sums that the update reads replace the gradients in memory.
Graph data_parallel(Graph graph, const DataParallelOptions& options);

// Casts the reduced gradient `low` to f32, into the memory of the gradient `sum`.
ValueId widen_reduced(GraphBuilder& builder, ValueId low, ValueId sum);

}  // namespace dltrain
