// Arithmetic of Adafactor, for host and device code. lib/ops/update_adaptive.cpp gives the formulas
// and their source.
#pragma once

#include "shared/update_rules.h"

namespace dltrain {

struct AdafactorRule {
  double beta2_decay = -0.8, epsilon1 = 0x1p-23, epsilon2 = 1e-3, d = 1;

  // ρ, the weight of new squares in the variances.
  DLTRAIN_HD double share(const StepState& state) const {
    return std::pow(static_cast<double>(state.out.updates), beta2_decay);
  }
  // Lower bound of variances in u = g / √v.
  template <typename T>
  DLTRAIN_HD T least() const {
    return static_cast<T>(epsilon1 * epsilon1);
  }
  // 1 / (mean of the rows' variances).
  DLTRAIN_HD double inverse_mean(double sum, double rows) const {
    const double mean = sum / rows;
    return 1 / (mean > epsilon1 ? mean : epsilon1);
  }
  // Factor of u, from the RMS of the parameter and of u.
  DLTRAIN_HD double step(const StepState& state, double lr, double parameter_rms,
                         double update_rms) const {
    const double most = 1 / std::sqrt(static_cast<double>(state.out.updates));
    const double ratio = update_rms / d;
    const double alpha =
        (parameter_rms > epsilon2 ? parameter_rms : epsilon2) * (lr < most ? lr : most);
    return alpha / (ratio > 1 ? ratio : 1);
  }
};

// A variance of rows or columns moved towards the mean of new squares.
template <typename T>
DLTRAIN_HD T adafactor_lerp(T variance, double mean_of_squares, double share) {
  const auto v = static_cast<double>(variance);
  return static_cast<T>(v + share * (mean_of_squares - v));
}

// Moves the variance of one element by `share`. A large share is applied from the other end, as in
// PyTorch's lerp: in the first update the share is 1, and a small g² is not rounded away.
template <typename T>
struct AdafactorLerp {
  bool from_variance;
  T weight;

  DLTRAIN_HD explicit AdafactorLerp(T share)
      : from_variance(share < T(0.5)), weight(from_variance ? share : share - 1) {}
  DLTRAIN_HD T operator()(T variance, T g) const {
    const T square = g * g;
    return (from_variance ? variance : square) + weight * (square - variance);
  }
};

// u = g / √max(v, least)
template <typename T>
DLTRAIN_HD T adafactor_quotient(T g, T v, T least) {
  return g / std::sqrt(v > least ? v : least);
}

}  // namespace dltrain
