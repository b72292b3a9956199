// (value * scale - mean) / std for input values read from files, computed in double, stored in f32.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dltrain {

struct Scaling {
  double scale = 1;
  // One number for all, or one for each element of the innermost dimension (a channel). Empty: no
  // normalization.
  std::vector<double> mean = {};
  std::vector<double> std = {};

  // Nothing, or what is wrong for samples whose innermost dimension has `channels` elements.
  std::string problem(int64_t channels) const;
};

// Scaling prepared for one innermost extent.
class Scaler {
 public:
  // Throws Error(usage) with Scaling::problem.
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
