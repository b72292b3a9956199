// Masked language modelling (Devlin et al. 2019, "BERT"): some tokens of a sequence are masked, and
// the model predicts them.
//
// max(1, round(probability * T)) of T tokens are chosen. A share of 0.8 of these becomes the mask
// token, 0.1 a random token of the vocabulary, and 0.1 is unchanged. The targets are the original
// tokens at chosen places and kIgnoredLabel elsewhere. The end-of-text token is chosen only if no
// other tokens are left. The choice is a function of seed and position in training, and of the
// sample in evaluation.
#pragma once

#include <cstdint>
#include <memory>

#include "data/dataset.h"

namespace dltrain {

struct MaskingOptions {
  double probability = 0.15;
  int32_t mask_id = 0;
  int32_t kept_id = -1;  // chosen last
};

// `windows` must have one input of i32 sequences.
std::shared_ptr<const Dataset> mask_tokens(std::shared_ptr<const Dataset> windows,
                                           const MaskingOptions& options);

}  // namespace dltrain
