// Choosing the next token of a text from its logits, with Hugging Face's meanings and order:
// repetition penalty, temperature, top-k, top-p, then a draw.
//
// The draw is a function of seed, text and place alone (base/philox.h): a prompt has the same
// continuation alone and among others, in whatever order texts are computed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dltrain {

struct SamplingOptions {
  double temperature = 1;  // logits are divided by it; 0: always the likeliest token
  int64_t top_k = 0;       // only so many of the likeliest; 0: all
  double top_p = 1;        // only the fewest likeliest that together have this probability
  // Logits of tokens that the text has already are divided by it where they are above 0, and
  // multiplied where they are below (Keskar et al. 2019); 1: they stay.
  double repetition_penalty = 1;
  uint64_t seed = 0;
};

// Of one text. Used by one thread.
class TokenSampler {
 public:
  // `prompt`: its tokens; `copy` tells continuations of the same prompt apart; `source`: of the
  // text, where it has one, which is no part of the text.
  TokenSampler(const SamplingOptions& options, std::span<const int32_t> prompt, int64_t copy,
               std::span<const int32_t> source = {});

  // The token at place `position` of the text, by the logits of all tokens. Throws
  // Error(diverged) when they are not finite. The text has the token from now on.
  int32_t next(std::span<const float> logits, int64_t position);

 private:
  void penalise();
  void note(int32_t token);
  void keep_top_k();
  void weigh();
  void keep_top_p();
  int32_t draw(int64_t position) const;

  SamplingOptions options_;
  uint64_t stream_, copy_;
  std::vector<bool> seen_;
  std::vector<int32_t> distinct_;  // tokens of the text, once each
  // Of the tokens that may still be drawn; at first of all of them, in the order of their ids.
  std::vector<float> logits_, weights_;  // weights: probabilities but for a factor
  std::vector<int32_t> ids_;
  std::vector<int32_t> order_;  // for top-p: places in logits_, the likeliest first
};

}  // namespace dltrain
