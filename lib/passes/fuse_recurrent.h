// Fuses recurrent networks with their input projection, for engines whose library includes the
// projection (cuDNN).
#pragma once

#include <functional>
#include <optional>

#include "graph/graph.h"

namespace dltrain {

// Returns the bytes that the engine's recurrent_network kernel keeps for its backward, or nullopt
// if fusing is not worthwhile (ops/kernel.h, kept_bytes()). The attribute kept_bytes of the request
// is 0.
using KeptBytes = std::function<std::optional<int64_t>(const Attributes& attributes,
                                                       SpecSpan inputs, SpecSpan outputs)>;

// Replaces a matmul (x·w_ihᵀ + b_ih) and the `recurrent` that is its only reader by
// recurrent_network; and recurrent_backward, the products after it (dx, dw_ih) and the sum db_ih by
// recurrent_network_backward. Sums over micro-steps keep their values: an `identity` writes them.
// Without a backward nothing is kept.
//
// A network is not fused if gates, cells or gradients between the parts have other readers (except
// the cells after the last token, which are carried), or if `kept` returns nullopt. Results differ
// in the last bits. Runs after fuse and before recompute.
Graph fuse_recurrent(Graph graph, const KeptBytes& kept);

}  // namespace dltrain
