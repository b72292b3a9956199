// Sequences of a token stream for language models: causal, masked, and in parallel streams.
//
// Sample i has the ids [i * T, i * T + T) of a part of the stream, T = sequence_length, and its
// targets are the following ids: [i * T + 1, i * T + T + 1). Windows do not overlap.
//
// In training, all windows of an epoch are shifted by an offset below T, a function of seed and
// epoch, so that the borders of the sequences vary. An epoch then has one window less and leaves
// out fewer than 2 T tokens at the ends of the part.
//
// With `document_end` samples have the input `document_positions` too: the number of tokens before
// each token in its document, which ends with that id. The first document of a sample may have
// begun before it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "data/dataset.h"
#include "data/token_stream.h"

namespace dltrain {

struct WindowOptions {
  int64_t sequence_length = 0;  // T
  bool random_offset = false;   // in training
  std::optional<int32_t> document_end = {};
};

// Makes windows of the ids [first, first + count). Throws Error(data) at the place `what` if they
// are too few for one window.
std::shared_ptr<const Dataset> token_windows(std::shared_ptr<const TokenStream> stream,
                                             int64_t first, int64_t count,
                                             const WindowOptions& options, const std::string& what);

// Masked language modelling (Devlin et al. 2019, "BERT"): some tokens of a sequence are masked, and
// the model predicts them.
//
// max(1, round(probability * T)) of T tokens are chosen. A share of 0.8 of these becomes the mask
// token, 0.1 a random token of the vocabulary, and 0.1 is unchanged. The targets are the original
// tokens at chosen places and kIgnoredLabel elsewhere. The end-of-text token is chosen only if no
// other tokens are left. The choice is a function of seed and position in training, and of the
// sample in evaluation.
struct MaskingOptions {
  double probability = 0.15;
  int32_t mask_id = 0;
  int32_t kept_id = -1;  // chosen last
};

// `windows` must have one input of i32 sequences.
std::shared_ptr<const Dataset> mask_tokens(std::shared_ptr<const Dataset> windows,
                                           const MaskingOptions& options);

// Reorders the windows of one stream so that several streams are read in parallel.
//
// The first S · W windows are cut into S streams of W; sample i of the result is window i / S of
// stream i mod S. In file order, a batch of S samples has one window of each stream, and each row
// continues the same row of the previous batch, as recurrent networks with carried state need. An
// epoch has W batches; the remaining windows are left out.
//
// The samples of `windows` must be consecutive. Throws Error(data) if there are fewer than
// `streams`; `split` is the name of the data in the message: "data.train".
std::shared_ptr<const Dataset> parallel_streams(std::shared_ptr<const Dataset> windows,
                                                int64_t streams, const std::string& split);

}  // namespace dltrain
