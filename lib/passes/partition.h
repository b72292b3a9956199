// Tensor parallelism: every rank of the mesh's axis `tensor` runs its shard of each layer on the
// same samples (Shoeybi et al. 2019, "Megatron-LM: Training Multi-Billion Parameter Language Models
// Using Model Parallelism"; the propagation is that of GSPMD, Xu et al. 2021).
//
// partition() runs before the reverse pass. It follows the forward in order. A parameter is sharded
// if the placement rule (OpDef::place) of the one node that reads it allows this with that node's
// other inputs as they are: a product of a replicated input shards its columns, a product of an
// input that is sharded on its inner dimension shards its rows and gives partial sums, biases and
// scales follow what they are added to. So do parameters that several nodes read in the same way,
// or can read on the same shards (tied embeddings). Partial results are summed at once; an op
// without a rule for its inputs gets them gathered. Shapes become those of this rank.
//
// A dimension is cut evenly, but the columns of products that an op reads by heads
// (OpDef::wanted) as that op wants. These products are found first, by following the wanted
// placements from the op to its inputs.
//
// The changes of placement are ops with gradients (ops/placement.cpp), so the reverse pass derives
// the communication of the backward from that of the forward, and the update pass makes state of
// the shapes of shards. lower_placements() then turns these ops into collectives.
#pragma once

#include <span>
#include <vector>

#include "comm/mesh.h"
#include "config/source_location.h"
#include "graph/builder.h"

namespace dltrain {

struct PartitionOptions {
  Mesh mesh = {};
  int rank = 0;             // of all ranks
  SourceLocation key = {};  // parallelism.tensor, for errors
  bool sequence = false;    // parallelism.sequence_parallel (passes/sequence_cut.h)
  // Another graph over the same state (steps of other lengths, evaluation), whose parameters are
  // sharded in the same way; nullptr: the pass decides.
  const Graph* same_state = nullptr;
  int ranks() const { return mesh.size(mesh_axes::kTensor); }
};

// Partitions a graph of the forward. `kept`: values that others refer to; each is replaced by one
// that is replicated. Returns the ops that read gathered inputs because they have no rule for
// shards: "layers.1: batch_norm". Throws ConfigError at the key if an op cannot be divided among
// the ranks.
std::vector<std::string> partition(Graph& graph, const PartitionOptions& options,
                                   std::span<ValueId* const> kept);

// Emits the gather of a value of which each rank has a shard, along one axis. `over`: kOver, or
// none.
ValueId emit_gather(GraphBuilder& builder, ValueId x, const Placement& shards, int ranks, int rank,
                    Attributes over);

// Changes the attributes of a node to those with which a rank runs it on shards (OpDef::localize).
// `inputs` and `whole`: the specs of its inputs and of its first output on one rank.
void localize(Node& node, SpecSpan inputs, const TensorSpec& whole,
              std::span<const Placement> placements, const Placement& output, int rank);

// Returns, for each value, the number of nodes that read it and of values in its memory.
std::vector<int> count_uses_and_views(const Graph& graph);

// Lowers the changes of placement, and records the shards of moments and copies. `kept`: see
// partition().
void lower_placements(Graph& graph, std::span<ValueId* const> kept);

// Makes the norm of gradients, and sums over tensors that an optimizer needs, those of all ranks,
// where these have shards or stages of the model.
void reduce_update_sums(Graph& graph, const Mesh& mesh);

// Emits the sums of `values` over the ranks of the group `over` (an axis, a set of axes, or empty:
// all ranks) as one message with this slot, and returns them.
std::vector<ValueId> emit_all_reduce(GraphBuilder& builder, const std::vector<ValueId>& values,
                                     const std::string& over, int64_t slot);

// Emits the gather of the `x` of so many ranks, which are alike in shape, in a row along a
// dimension, as one message with this slot.
ValueId emit_all_gather(GraphBuilder& builder, ValueId x, int dimension, int64_t ranks,
                        const std::string& over, int64_t slot);

// The attributes of both ops of a message.
Attributes message_attributes(int64_t slot, const std::string& over);

// Emits the gradient norm in the place of `norm` where gradients are sharded: the squares of those
// that are sharded over the same axes are summed over these, so replicated ones count once. The
// squares of the stages of a pipeline are summed.
void emit_sharded_norm(GraphBuilder& builder, const Node& norm, std::span<const ValueId> gradients,
                       const Mesh& mesh, int64_t& slot);

}  // namespace dltrain
