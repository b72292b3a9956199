// The greatest of differences, where NaN counts as the greatest of all.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace dltrain {

// The greater of two numbers; infinity where `next` is NaN, of which std::max takes no notice.
inline double max_or_inf(double most, double next) {
  return std::isnan(next) ? std::numeric_limits<double>::infinity() : std::max(most, next);
}

}  // namespace dltrain
