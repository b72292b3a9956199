// ZeRO (Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter
// Models"): state that data parallelism replicates is sharded over the ranks.
//
//   stage 1  optimizer moments, averages, and f32 masters where products read low-precision copies
//   stage 2  gradients too: every micro-step ends in a reduce-scatter
//   stage 3  parameters and copies too: gathered before use, in forward and backward each, one unit
//            ahead, and released after use
//
// Parameters are grouped to units in the order in which the step uses them: each is one piece of
// memory (graph.h: FlatGroup) of ranks · elements, of which rank r owns part r, and is sent as one
// message. A rank thus owns a range of the elements of each tensor (placement.h: FlatCut), stores
// these ranges of sharded tensors, and updates each of them as a tensor. Everything else
// (statistics, metrics, running statistics, the StepState, parameters that stages of a pipeline
// share or whose gradients are projected, optim/galore.h) is replicated on every rank.
//
// The graphs of the ranks differ only in these ranges.
//
// Hybrid (several ranks along the mesh's axis `replica`; MiCS, Zhang et al. 2022; FSDP's
// HYBRID_SHARD): state is sharded over the ranks of a group, usually one node, and replicated over
// the groups. Reduce-scatters and gathers stay within the group (the mesh's axis `shard`); once a
// step each part's gradient is summed over the ranks that own it (axis `replica`).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "passes/data_parallel.h"

namespace dltrain {

struct ZeroUnit {
  struct Member {
    std::string parameter;
    TensorSpec spec;    // of this rank's shard, where a layer is sharded (passes/partition.h)
    int64_t first = 0;  // element of the unit at which it begins
  };
  std::string name;  // "zero.3"
  // The ranks that hold the parts: all along `shard` and `expert`, of experts those along `shard`.
  std::string axes = mesh_axes::kState;
  int ranks = 1;
  std::vector<Member> members;
  int64_t elements = 0;         // that a rank owns, including padding
  bool trainable = true;        // false: frozen or without gradient (stage 3 only)
  bool reads_master = true;     // some op of the forward or backward reads the parameters
  int64_t block = 1;            // of moments in 8 bits: members and parts begin at blocks
  std::optional<DType> copies;  // of the low-precision copies that products read
  Layout layout = {};           // of a rank's part of the parameters
};

// Returns the units of a training graph, which must have its update segment. Graphs over the same
// state (steps of other lengths, evaluation) must use the same units.
std::vector<ZeroUnit> find_zero_units(const Graph& graph, const DataParallelOptions& options);

// Rewrites a graph of training, with the reductions of data_parallel(), or of evaluation (where
// only parameters of stage 3 and averages have to be gathered). Runs after recompute(), whose nodes
// of the backward read gathered parameters too.
Graph zero(Graph graph, const std::vector<ZeroUnit>& units, const DataParallelOptions& options);

}  // namespace dltrain
