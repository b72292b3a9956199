// Data parallelism: every rank runs the same graph on its own micro-batches. Sums over a step
// (gradients, batch statistics, metrics) are reduced over the ranks before the update reads them.
// With a fixed order this pass also combines the micro-steps of a rank.
#pragma once

#include <cstddef>
#include <optional>

#include "comm/mesh.h"
#include "config/source_location.h"
#include "graph/graph.h"

namespace dltrain {

struct DataParallelOptions {
  Mesh mesh = {};                                    // see mesh_axes for the sets of ranks
  int rank = 0;                                      // of all ranks
  SourceLocation tensor_key = {}, context_key = {};  // of parallelism, for errors
  bool ring = false;                                 // of context parallelism
  bool sequence = false;                             // of tensor parallelism
  SourceLocation sequence_key = {};
  std::optional<int64_t> product_pieces = {};  // passes/cut_products.h; none: by the cost model
  int zero_stage = 0;                          // passes/zero.h
  // Target size of a reduction message: large enough to use the link well, small enough that most
  // messages are sent while the backward still runs. A tensor is never split.
  size_t bucket_bytes = size_t{25} << 20;
  DType reduce_dtype = DType::f32;  // bf16: f32 gradients are sent as bf16
  // training.reduction: fixed. Sums are added as one binary tree over the micro-batches of the
  // global batch (ops/tree_sum.cpp). With several ranks micro_steps must be a power of two.
  // Micro-steps of the program must overwrite sums (ProgramOptions::several_micro_steps false).
  bool fixed = false;
  int64_t micro_steps = 1, micro_batch = 1;  // of a rank and step; its samples

  // The ranks whose sums are added up, and those that have different samples.
  int ranks() const { return mesh.size(mesh_axes::kSums); }
  int data_ranks() const { return mesh.size(mesh_axes::kData); }
  // This rank's place among those that hold the parts of one state (ZeroUnit::axes).
  int part(std::string_view axes) const { return mesh.coordinate(rank, axes); }
  bool shards_state() const { return zero_stage > 0 && mesh.size(mesh_axes::kState) > 1; }
  bool hybrid() const { return mesh.size(mesh_axes::kReplica) > 1; }
};

// Adds the reductions. Returns the graph unchanged with one rank (and one micro-step, or without a
// fixed order).
//
// Every sum of a step is partial over the ranks along kSums, gradients of experts only over those
// that have the same ones (passes/expert_cut.h). A bucket contains sums of one role
// and dtype that are adjacent in the StateLayout (ascending value ids), so it is one range of
// memory. Its all_reduce_begin is right after the last node that writes one of its members and runs
// in the last micro-step only; its all_reduce_end is at the start of the update, whose nodes then
// read the reduced sums. In a graph without an update (evaluation) the ends come last. Slots number
// the buckets in the order in which they begin, which is the same on all ranks. With a fixed order
// a bucket's tree_sum precedes its begin, and runs in every micro-step. Gradients sent as bf16 are
// rounded once per rank, before their begin; the f32 sums that the update reads replace the
// gradients in memory.
//
// With ZeRO (passes/zero.h) the gradients of a unit are a bucket of which each rank needs a part
// only, so its message is a reduce-scatter. Stage 1: gradients are accumulated over the micro-steps
// in their own memory, and the part is a window into it. Stage 2: gradients live in the memory of
// activations from their first writer to the reduction, which every micro-step has, and only the
// part is accumulated. The wait is placed where the next unit's reduction begins: one unit is sent
// while the next is computed, and at most two exist. Hybrid: both stages wait there, since in the
// last micro-step the sum of the part over the groups follows, for which the update waits.
Graph data_parallel(Graph graph, const DataParallelOptions& options);

}  // namespace dltrain
