// Masked language modelling (Devlin et al. 2019, "BERT"): some of a sequence's tokens are hidden,
// and the model says what they were.
//
// Of T tokens max(1, round(probability * T)) are chosen. Of these a share of 0.8 becomes the mask
// token, 0.1 any token of the vocabulary, and 0.1 stays; the targets are the tokens as they were at
// chosen places and kIgnoredLabel elsewhere. The end-of-text token is chosen only where nothing
// else is left. Which places, and what becomes of them, is a function of seed and position in
// training, and of the sample alone in evaluation.
#pragma once

#include <cstdint>
#include <memory>

#include "data/dataset.h"

namespace dltrain {

struct MaskingOptions {
  double probability = 0.15;
  int32_t mask_id = 0;
  int32_t kept_id = -1;  // is not chosen while there are others
};

// `windows`: i32 sequences as its one input.
std::shared_ptr<const Dataset> mask_tokens(std::shared_ptr<const Dataset> windows,
                                           const MaskingOptions& options);

}  // namespace dltrain
