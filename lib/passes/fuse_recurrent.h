// Recurrent networks with the projection of their inputs: for engines whose library takes the
// inputs before it (cuDNN).
#pragma once

#include <functional>
#include <optional>

#include "graph/graph.h"

namespace dltrain {

// The bytes that the engine's kernel of a recurrent_network keeps for its backward, or nothing
// where the graph had better stay as it is (ops/kernel.h, kept_bytes()). The attribute kept_bytes
// of the request is 0.
using KeptBytes = std::function<std::optional<int64_t>(const Attributes& attributes,
                                                       SpecSpan inputs, SpecSpan outputs)>;

// Puts recurrent_network in the place of a matmul (x·w_ihᵀ + b_ih) and the `recurrent` that alone
// reads it, and recurrent_network_backward in the place of recurrent_backward, the products behind
// it (dx, dw_ih) and the sum db_ih. Sums over micro-steps keep their values: an `identity` writes
// them. Without a backward nothing is kept.
//
// A network stays as it is where gates, cells or gradients between the parts have other readers
// (but for the cells after the last token, which are carried on), or where `kept` says nothing.
// Results differ in the last bits. It runs after fuse and before recompute.
Graph fuse_recurrent(Graph graph, const KeptBytes& kept);

}  // namespace dltrain
