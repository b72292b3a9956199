// Made-up samples for benchmarks and tests: each class is a random centre, samples are the centre
// plus noise, so a model can learn them. Sample i is a pure function of (seed, i).
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

// Throws Error(usage) for sizes that cannot be.
std::shared_ptr<const Dataset> make_synthetic(const SyntheticOptions& options);

}  // namespace dltrain
