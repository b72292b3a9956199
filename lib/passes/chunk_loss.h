// Cross-entropy over a large vocabulary by chunks of tokens. A matmul whose logits only a
// softmax_cross_entropy and its gradient read is cut along its rows; each chunk goes through
// logits, loss and their gradient (softmax_cross_entropy_gradient, which reads them once) and the
// products of the backward before the next one begins, all in the backward, so that no more than
// one chunk of logits exists at a time and nothing is computed twice. The chunks' parts of a
// gradient continue one sum (Graph::continues_sum).
//
//   forward   y = matmul(x, w[, b]); loss, sums, correct = softmax_cross_entropy(y, targets)
//   backward  dy = softmax_cross_entropy_backward(y, targets, sums, seed)
//             dx = matmul(dy, w); dw = matmul(dyᵀ, x); db = reduce(dy)
//
// The parts of dw and db are added in the order of the chunks. Results depend on shapes and limits
// only, but differ in the last bits from those without chunks.
//
// Tensor cores need rows of a multiple of 16 bytes. For a vocabulary of another size, `w` and `b`
// get rows of zeros at the end once a micro-step, so that every product of a chunk has a multiple
// of `column_grain` columns. Large vocabularies get rows of a multiple of 128 bytes: on an H100 a
// step of GPT-2 124M with 50257 classes takes 2 % longer with rows of 16 bytes. The loss ignores
// these (attribute `classes`), and the sums of dw and db lose them at the end.
#pragma once

#include "graph/graph.h"
#include "graph/reverse.h"

namespace dltrain {

inline constexpr size_t kMaxLogitBytes = size_t{64} << 20;

struct LogitLimits {
  size_t most_bytes = kMaxLogitBytes;        // of the logits of a chunk
  int64_t row_grain = 16, column_grain = 1;  // rows and columns of a chunk are multiples of these
  int64_t wide_column_grain = 1;  // of 64 such multiples and more columns, where it adds little
  size_t least_padded = size_t{1} << 20;  // bytes of logits that are worth padding
};

// Returns the limits for a GPU with `memory` bytes; 0: the CPU. Each chunk adds to the whole
// gradient of the head, so a GPU gets few large chunks: up to 1/64 of its memory.
LogitLimits logit_limits(uint64_t memory);

// Runs after `reverse`, whose result `gradients` it updates. Logits that fit one chunk and need no
// padding, and graphs of another form, remain unchanged. Returns whether it has changed the graph.
bool chunk_loss(Graph& graph, std::vector<ParameterGradient>& gradients,
                const LogitLimits& limits = {});

}  // namespace dltrain
