// ZeRO (Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter
// Models"): what data-parallel ranks would all hold is cut among them.
//
//   stage 1  optimizer moments, and f32 masters where products read low-precision copies
//   stage 2  gradients too: every micro-step ends in a reduce-scatter
//   stage 3  parameters and copies too: gathered before use, in forward and backward each, one unit
//            ahead, and released after
//
// Parameters are joined to units, in the order in which the step uses them: each is one piece of
// memory (graph.h: FlatGroup) of ranks · elements, of which rank r owns part r, and travels as one
// message. The members of a unit have the same learning rate and decay, so that the optimizer's
// element-wise update runs on parts as it runs on tensors. Everything else (statistics, metrics,
// running statistics, the StepState) stays whole on every rank.
//
// Every rank has the same graph but for which elements of a tensor lie in its part.
//
// Hybrid (options.groups > 1; MiCS, Zhang et al. 2022; FSDP's HYBRID_SHARD): state is cut among the
// ranks of a group, usually those of a node, and every group holds all of it. Reductions to parts
// and gathers stay within the group (the mesh's axis `shard`); once a step each part's gradient is
// summed over the ranks that hold it (axis `replica`).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace dltrain {

struct ZeroOptions {
  int stage = 0;
  int ranks = 1, rank = 0;                 // that share the state, and which of them this is
  int groups = 1;                          // of as many ranks, each of which holds all state
  size_t bucket_bytes = size_t{25} << 20;  // of f32 in a unit; a larger tensor is a unit of its own
  DType travels = DType::f32;              // of gradients of f32, as DataParallelOptions
  bool active() const { return stage > 0 && ranks > 1; }
  bool hybrid() const { return groups > 1; }
};

struct ZeroUnit {
  struct Member {
    std::string parameter;
    TensorSpec spec;
    int64_t first = 0;  // element of the unit at which it begins
  };
  std::string name;  // "zero.3"
  std::vector<Member> members;
  int64_t elements = 0;  // that a rank owns, padding included
  double lr_scale = 1, weight_decay = 0;
  bool learns = true;           // false: frozen, or nothing reaches it (stage 3 only)
  bool reads_master = true;     // some op of the forward or backward reads the parameters
  std::optional<DType> copies;  // of the low-precision copies that products read
};

// The units of a training graph, with its update. Graphs over the same state (steps of other
// lengths, evaluation) must be given the same.
std::vector<ZeroUnit> find_zero_units(const Graph& graph, const ZeroOptions& options);

// Rewrites a graph of training, or of evaluation (where only stage 3 changes anything). Runs last:
// recomputed nodes of the backward read gathered parameters too. The reductions of statistics and
// metrics are already there, those of gradients are not (DataParallelOptions::gradients).
Graph zero(Graph graph, const std::vector<ZeroUnit>& units, const ZeroOptions& options);

}  // namespace dltrain
