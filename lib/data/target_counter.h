// Counts targets with their weights (tensor/target_weights.h). Holds scratch memory: one per
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "data/dataset.h"
#include "tensor/target_weights.h"

namespace dltrain {

struct TargetCount {
  int64_t valid = 0;   // targets that count
  double divisor = 0;  // of the loss's mean
};

class TargetCounter {
 public:
  // `dataset` must outlive the counter. TargetWeights::group applies to f32 targets only.
  TargetCounter(const Dataset& dataset, TargetWeights weights);

  // Returns the count of this number of samples, if every sample counts the same.
  std::optional<TargetCount> uniform(int64_t samples) const;
  // Adds the targets of one sample, as training sees them at a visit or, without one, as evaluation
  // does. The order of calls is the order of the sums.
  void add(int64_t sample, const SampleVisit* visit, TargetCount& count);

 private:
  const Dataset* dataset_;
  TargetWeights weights_;
  std::vector<std::byte> targets_;  // of one sample
};

}  // namespace dltrain
