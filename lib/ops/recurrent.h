// Definitions that the recurrent op, its kernels and its layers share.
#pragma once

#include <string_view>

#include "base/host_device.h"
#include "ops/op.h"

namespace dltrain {

enum class RecurrentKind : uint8_t { lstm, gru, rnn_tanh, rnn_relu };

// Returns the value of the attribute `kind`; throws Error(usage) for an unknown name.
RecurrentKind recurrent_kind(const Attributes& attributes);

// Returns the number of blocks of `hidden` rows in the weight. Their order is PyTorch's: i, f, g, o
// of an LSTM; r, z, n of a GRU.
int64_t recurrent_gates(RecurrentKind kind);

// Returns true if the forward keeps gates and cells for the backward.
inline bool keeps_gates(RecurrentKind kind) {
  return kind == RecurrentKind::lstm || kind == RecurrentKind::gru;
}

struct RecurrentSizes {
  RecurrentKind kind = RecurrentKind::lstm;
  int64_t samples = 0, tokens = 0, hidden = 0;
  int64_t gates = 0;     // recurrent_gates(kind)
  bool reverse = false;  // from the last token to the first

  DLTRAIN_HD int64_t width() const { return gates * hidden; }
  // The token of step i, and the one whose state it reads (-1: none, the initial state).
  DLTRAIN_HD int64_t token(int64_t i) const { return reverse ? tokens - 1 - i : i; }
  DLTRAIN_HD int64_t before(int64_t token) const {
    if (reverse) return token + 1 < tokens ? token + 1 : -1;
    return token - 1;
  }
};

// Returns the sizes for an output y [samples, tokens, hidden].
RecurrentSizes recurrent_sizes(const Shape& y, const Attributes& attributes);

}  // namespace dltrain
