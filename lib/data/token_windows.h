// Sequences of a token stream: what causal language models learn from.
//
// Sample i is the window of ids [i * T, i * T + T) of the stream's part, T = sequence_length, and
// its targets are the ids that follow each: [i * T + 1, i * T + T + 1). Windows do not overlap.
//
// In training all windows of an epoch are shifted by one offset below T, a function of seed and
// epoch, so that the borders of the sequences lie elsewhere each time. An epoch then has one window
// less than fit, and leaves out fewer than 2 T tokens of the part, at its ends.
#pragma once

#include <cstdint>
#include <memory>

#include "data/dataset.h"
#include "data/token_stream.h"

namespace dltrain {

struct WindowOptions {
  int64_t sequence_length = 0;  // T
  bool random_offset = false;   // in training
};

// Of ids [first, first + count) of the stream. Throws Error(data) where they are too few for one
// window; `what` is the place then.
std::shared_ptr<const Dataset> token_windows(std::shared_ptr<const TokenStream> stream,
                                             int64_t first, int64_t count,
                                             const WindowOptions& options, const std::string& what);

}  // namespace dltrain
