// Samples the next token of a text from its logits, with Hugging Face's options and order:
// repetition penalty, temperature, top-k, top-p, then a random draw.
//
// The draw depends only on seed, text and position (base/philox.h): the continuation of a prompt
// does not depend on other texts or their order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dltrain {

struct SamplingOptions {
  double temperature = 1;  // logits are divided by it; 0: always the most likely token
  int64_t top_k = 0;       // only the k likeliest tokens; 0: all
  double top_p = 1;        // only the fewest likeliest tokens with this total probability
  // Logits of tokens that are already in the text are divided by it if they are above 0, and
  // multiplied if they are below (Keskar et al. 2019); 1: no penalty.
  double repetition_penalty = 1;
  uint64_t seed = 0;
};

// The sampler of one text. Used by one thread.
class TokenSampler {
 public:
  // `prompt`: its tokens; `copy`: the number of the continuation of this prompt; `source`: the
  // tokens of the source, if there is one.
  TokenSampler(const SamplingOptions& options, std::span<const int32_t> prompt, int64_t copy,
               std::span<const int32_t> source = {});

  // Samples the token at `position` of the text from the logits of all tokens and adds it to the
  // text. Throws Error(diverged) if the logits are not finite.
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
  // For the tokens that may still be drawn; at first all of them, in the order of their ids.
  std::vector<float> logits_, weights_;  // weights: probabilities but for a factor
  std::vector<int32_t> ids_;
  std::vector<int32_t> order_;  // for top-p: places in logits_, the likeliest first
};

}  // namespace dltrain
