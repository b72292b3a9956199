// The weights of targets. A loss defines them, and the loader adds them up over the global batch
// before a step: the number of targets that count, by which metrics are divided, and the divisor of
// the mean of the loss, which differs if classes have weights.
#pragma once

#include <cstdint>
#include <vector>

namespace dltrain {

struct TargetWeights {
  // Elements per target: the number of classes for distributions, otherwise 1.
  int64_t group = 1;
  // The weight of each target if `by_label` is empty.
  double each = 1;
  // The weights of i32 targets by label (class weights).
  std::vector<double> by_label = {};
};

}  // namespace dltrain
