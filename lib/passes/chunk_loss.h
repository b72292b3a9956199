// Cross-entropy over a large vocabulary by chunks of tokens. A matmul whose logits only a
// softmax_cross_entropy and its gradient read is cut along its rows; each chunk goes through
// logits, loss, gradient of the logits and the products of the backward before the next one begins,
// all in the backward, so that no more than one chunk of logits exists at a time and nothing is
// computed twice. The chunks' parts of a gradient continue one sum (Graph::continues_sum).
//
//   forward   y = matmul(x, w[, b]); loss, sums, correct = softmax_cross_entropy(y, targets)
//   backward  dy = softmax_cross_entropy_backward(y, targets, sums, seed)
//             dx = matmul(dy, w); dw = matmul(dyᵀ, x); db = reduce(dy)
//
// The parts of dw and db are added in the order of the chunks. Results depend on shapes only, but
// differ in the last bits from those without chunks.
#pragma once

#include "graph/graph.h"
#include "graph/reverse.h"

namespace dltrain {

inline constexpr size_t kMostLogitBytes = size_t{64} << 20;

// Runs after `reverse`, whose result `gradients` it updates. Logits of at most `most_bytes`, and
// graphs of another form, remain unchanged.
void chunk_loss(Graph& graph, std::vector<ParameterGradient>& gradients,
                size_t most_bytes = kMostLogitBytes);

}  // namespace dltrain
