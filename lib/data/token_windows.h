// Sequences of a token stream for causal language models.
//
// Sample i has the ids [i * T, i * T + T) of a part of the stream, T = sequence_length, and its
// targets are the following ids: [i * T + 1, i * T + T + 1). Windows do not overlap.
//
// In training, all windows of an epoch are shifted by an offset below T, a function of seed and
// epoch, so that the borders of the sequences vary. An epoch then has one window less and leaves
// out fewer than 2 T tokens at the ends of the part.
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

// Makes windows of the ids [first, first + count). Throws Error(data) at the place `what` if they
// are too few for one window.
std::shared_ptr<const Dataset> token_windows(std::shared_ptr<const TokenStream> stream,
                                             int64_t first, int64_t count,
                                             const WindowOptions& options, const std::string& what);

}  // namespace dltrain
