// Scaling of input values: (value * scale - mean) / std, computed in double and stored in f32.
#pragma once

#include <cstdint>
#include <vector>

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
  Scaler(const Scaling& scaling, int64_t channels);

  // `element` counts within the sample.
  float operator()(double value, int64_t element) const {
    if (!active_) return static_cast<float>(value);
    const size_t c = static_cast<size_t>(element % channels_);
    return static_cast<float>((value * scale_ - mean_[c]) / std_[c]);
  }

 private:
  bool active_;
  double scale_;
  int64_t channels_;
  std::vector<double> mean_, std_;
};

}  // namespace dltrain
