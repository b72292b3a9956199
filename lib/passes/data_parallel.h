// Data parallelism: every rank runs the same graph on its own micro-batches; what is summed over a
// step (gradients, batch statistics, metrics) is summed over the ranks as well, before the update
// reads it. With a fixed order the micro-steps of a rank are combined here too.
#pragma once

#include <cstddef>

#include "graph/builder.h"

namespace dltrain {

struct DataParallelOptions {
  int ranks = 1;
  // Sums travel in messages of about this size: large enough to use the link well, small enough
  // that most of them leave while the backward is still running. A tensor is never split.
  size_t bucket_bytes = size_t{25} << 20;
  bool gradients = true;       // false: another pass reduces them (passes/zero.h)
  DType travels = DType::f32;  // bf16: gradients of f32 travel in it (parallelism.reduce_dtype)
  // training.reduction: fixed: sums are added as one binary tree over the micro-batches of the
  // global batch (ops/tree_sum.cpp). With several ranks micro_steps is a power of two. The plan is
  // then one whose micro-steps overwrite (PlanOptions::several_micro_steps false).
  bool fixed = false;
  int64_t micro_steps = 1, micro_batch = 1;  // of a rank and step; its samples
};

// Adds the reductions; with one rank (and one micro-step, or without a fixed order) the graph comes
// back as it is.
//
// A bucket holds sums of one role and dtype that are neighbours in the StateLayout (ascending value
// ids), so it is one range of memory. Its all_reduce_begin stands right after the last node that
// writes one of its members and runs in the last micro-step only; its all_reduce_end stands at the
// start of the update, whose nodes then read the reduced sums. In a graph without an update
// (evaluation) the ends come last. Slots number the buckets in the order in which they begin, which
// is the same on all ranks. With a fixed order a bucket's tree_sum stands before its begin, and
// runs in every micro-step.
// Gradients that travel in bf16 are rounded before their begin, each rank's sum once; the f32 sums
// that the update reads lie where the gradients lay.
Graph data_parallel(Graph graph, const DataParallelOptions& options);

// The f32 of a gradient that has travelled as `low`, in the memory of the gradient `sum`.
ValueId widen_reduced(GraphBuilder& builder, ValueId low, ValueId sum);

}  // namespace dltrain
