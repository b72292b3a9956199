// How the targets of a sample count: what a loss says of its targets, and what the loader adds up
// over the whole global batch ahead of a step. Two sums follow from it: the number of counted
// targets, by which metrics are divided, and the divisor of the loss's mean, which is another one
// where classes have weights.
#pragma once

#include <cstdint>
#include <vector>

namespace dltrain {

struct TargetWeights {
  // So many elements of the targets are one target: the classes of a distribution; else 1.
  int64_t group = 1;
  // What one counted target adds to the divisor, where `by_label` is empty.
  double each = 1;
  // What a counted i32 target adds to the divisor, by its label (class weights).
  std::vector<double> by_label = {};
};

}  // namespace dltrain
