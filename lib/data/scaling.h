// Scaling of input values: (value * scale - mean) / std, computed in double and stored in f32.
#pragma once

#include <cstdint>
#include <vector>

#include "base/error.h"

namespace dltrain {

struct Scaling {
  double scale = 1;
  // One number for all or one for each channel (element of the innermost dimension). Empty: no
  // normalization. The configuration ensures finite values and std > 0.
  std::vector<double> mean = {};
  std::vector<double> std = {};
};

// Scaling prepared for one innermost extent.
class Scaler {
 public:
  // Throws Error(usage) if mean or std does not fit `channels`, the innermost dimension.
  Scaler(const Scaling& scaling, int64_t channels)
      : active_(scaling.scale != 1 || !scaling.mean.empty()),
        scale_(scaling.scale),
        channels_(channels) {
    for (const auto* list : {&scaling.mean, &scaling.std}) {
      if (list->size() <= 1 || static_cast<int64_t>(list->size()) == channels) continue;
      fail(ExitCode::usage, "normalize has {} numbers for {} channels (the innermost dimension)",
           list->size(), channels);
    }
    for (int64_t c = 0; c < (active_ ? channels : 0); ++c) {
      const auto pick = [c](const std::vector<double>& list, double otherwise) {
        return list.empty() ? otherwise : list.size() == 1 ? list[0] : list[static_cast<size_t>(c)];
      };
      mean_.push_back(pick(scaling.mean, 0));
      std_.push_back(pick(scaling.std, 1));
    }
  }

  // `element` counts within the sample.
  float operator()(double value, int64_t element) const {
    return static_cast<float>(exact(value, element));
  }
  double exact(double value, int64_t element) const {
    if (!active_) return value;
    const size_t c = static_cast<size_t>(element % channels_);
    return (value * scale_ - mean_[c]) / std_[c];
  }

 private:
  bool active_;
  double scale_;
  int64_t channels_;
  std::vector<double> mean_, std_;
};

}  // namespace dltrain
