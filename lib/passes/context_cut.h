// Context parallelism: every rank of the mesh's axis `context` computes its tokens of each sample
// (ops/token_runs.h) in all that works token by token; attention communicates. As in Llama 3
// (Dubey et al. 2024, section 3.3.2) the keys and values of all tokens are gathered, in the
// backward again, so that no rank keeps them; or they pass from rank to rank (ring attention).
//
// cut_context() runs before partition() and the reverse pass. Inputs stay whole: ids are sliced
// where an embedding reads them. From there the pass follows the axis along which values count
// tokens (OpDef::token_axis); whole operands with a row for each token (positions, targets) are
// sliced too. Shapes become those of this rank. An op without a rule reads gathered inputs and runs
// whole on every rank; its outputs are sliced where they meet tokens again.
//
// All sums of a rank (loss, gradients, metrics) are parts that are added up over the axis, with
// those of the data-parallel ranks (mesh_axes::kSums). A sum of values that every rank has whole is
// therefore divided by the number of ranks, and the gradient of a gather is a reduce-scatter.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "config/source_location.h"
#include "graph/builder.h"

namespace dltrain {

struct ContextOptions {
  Mesh mesh = {};
  int rank = 0;  // of all ranks
  DType compute = DType::f32;
  bool ring = false;        // parallelism.context_method
  SourceLocation key = {};  // parallelism.context, for errors
  int ranks() const { return mesh.size(mesh_axes::kContext); }
};

struct ContextCutResult {
  std::vector<std::string> gathered;  // ops that ran whole: "layers.1: batch_norm"
  bool whole_output = false;          // every rank has the whole output of the model
};

// Cuts a graph of the forward. `sums`: the values that are added up over the ranks; each becomes
// this rank's part. `targets`, and inputs of their shape, become those of the tokens of `output`.
// Throws ConfigError at the key for models and lengths that cannot be divided.
ContextCutResult cut_context(Graph& graph, const ContextOptions& options,
                             std::span<ValueId* const> sums, ValueId output,
                             std::span<ValueId* const> targets);

// Returns true for ops of recurrent layers, whose tokens no ranks can share.
bool reads_tokens_in_order(const Node& node);

// Emits this rank's part of a sum over values that all ranks have.
ValueId emit_share(GraphBuilder& builder, ValueId sum, const ContextOptions& options);

// Turns attention over the tokens of several ranks, and gathers of tokens, into messages and ops on
// one rank.
void lower_context(Graph& graph, const ContextOptions& options);

}  // namespace dltrain
