// Made-up samples for benchmarks and tests: each class is a random centre, samples are the centre
// plus noise, so a model can learn them. Or sequences of random tokens, of which nothing can be
// learned. Sample i is a pure function of (seed, i).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/dataset.h"

namespace dltrain {

struct SyntheticOptions {
  std::vector<int64_t> shape{784};  // of one sample
  int64_t classes = 10;
  int64_t samples = 1024;
  uint64_t seed = 0;
  double noise = 1;  // standard deviation about the centres, whose own is 1
};

struct SyntheticTokensOptions {
  int64_t vocab_size = 256;
  int64_t length = 128;  // tokens of a sample
  int64_t samples = 256;
  uint64_t seed = 0;
  // Share of the tokens that are masked (their id is 0) and whose places alone are targets; 0: the
  // targets are the next tokens.
  double masked = 0;
};

// Throw Error(usage) for sizes that cannot be.
std::shared_ptr<const Dataset> make_synthetic_tokens(const SyntheticTokensOptions& options);
std::shared_ptr<const Dataset> make_synthetic(const SyntheticOptions& options);

}  // namespace dltrain
