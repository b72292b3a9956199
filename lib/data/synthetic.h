// Synthetic samples for benchmarks and tests: each class has a random centre, and its samples are
// the centre plus noise. Or sequences of random tokens. Sample i is a pure function of (seed, i).
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
  double noise = 1;  // standard deviation around the centres, which have standard deviation 1
};

struct SyntheticTokensOptions {
  int64_t vocab_size = 256;
  int64_t length = 128;  // tokens of a sample
  int64_t samples = 256;
  uint64_t seed = 0;
  // Share of the tokens that are masked (id 0) and are the only targets; 0: the targets are the
  // next tokens.
  double masked = 0;
};

// Throw Error(usage) for sizes that are too large.
std::shared_ptr<const Dataset> make_synthetic_tokens(const SyntheticTokensOptions& options);
std::shared_ptr<const Dataset> make_synthetic(const SyntheticOptions& options);

}  // namespace dltrain
