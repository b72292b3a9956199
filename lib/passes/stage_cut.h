// Pipeline parallelism: the part of a step that the ranks of one stage, or of some stages, run. It
// has the nodes of their layers, their backward and update, and only their parameters and other
// state.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace dltrain {

struct StageCut {
  int rank = 0;  // along the axis `pipeline`
  // The layer with which each stage but the first begins.
  std::vector<std::string> begins;
  // The gradients are sent at the end of the backward, so that the next forward's values can be
  // received before (Executor::run).
  bool sends_last = false;
  int chunks = 1;  // stages of each rank
  int stages() const { return static_cast<int>(begins.size()) + 1; }
  int ranks() const { return stages() / chunks; }
};

// The most stages of a model.
constexpr int kMostStages = 256;

// Returns the layers with which so many stages but the first should begin, such that the slowest
// stage takes the least time for arithmetic and messages, at the fixed rates of a kind of device
// (as all ranks must agree). `forward`: of the whole model, before it is differentiated. Throws
// Error(usage) if the model has too few layers with parameters.
std::vector<std::string> choose_stages(const Graph& forward, int stages, bool on_gpu = false);

// Returns for each path the first layer from there on that has parameters: evaluations lack some
// layers without. Throws Error(usage) unless the layers are in the model, in this order.
std::vector<std::string> find_stages(const Graph& forward, const std::vector<std::string>& begins);

// Returns for each stage the first one that has the same ops, shapes and messages in the forward,
// and nodes of which `more` says the same, so that it has the same plan: equal blocks make most
// stages of a deep model equal. The first and the last stage have no equal.
std::vector<int> find_equal_stages(const Graph& forward, const std::vector<std::string>& begins,
                                   const std::function<std::string(const Node&)>& more);

// Stages send each other, in every micro-batch,
//   in the forward   the values that later stages read, when they are produced;
//   in the backward  the gradients that earlier stages read.
// A value for a stage further away passes through those between. Messages are received when the
// segment begins. Those of the forward and of the backward have groups of their own
// (comm/mesh.h), in each of which their order is that of the micro-batches, so stages may have
// different numbers of micro-batches in flight (graph/schedule.h).
//
// With several chunks, stage s is chunk s / ranks of rank s mod ranks (Node::chunk; in evaluations
// all run in one forward), so messages also go from the last rank to the first. All are sent at
// the end of a segment, since the order of messages is that of interleaved_schedules()
// (graph/schedule.h).
//
// Parameters that layers of several ranks read (tied embeddings) are on each of them. In the
// update these ranks exchange the gradients, add them in their order, and make the same step. The
// sums for metrics are sent to all stages. The node of the gradient norm has only gradients of this
// stage, each on one stage; reduce_update_sums() (passes/partition.h) adds up the stages.
//
// Checkpointed state of other stages stays in the graph, as a tensor of which this rank stores
// nothing (Shard::is_here). Precedes fuse and the reductions over data-parallel ranks.
Graph stage_cut(Graph graph, const StageCut& cut);

}  // namespace dltrain
