// Arithmetic of clip_percentile and ema_update (lib/ops/update_state.cpp), for host and device
// code.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/host_device.h"
#include "ops/step_state.h"
#include "tensor/low_precision.h"

namespace dltrain {

// Returns the k-th smallest (from 1) of n non-negative floats. Their bits have the order of their
// values, so a search bit by bit needs neither memory nor sorting.
DLTRAIN_HD float kth_smallest(const float* x, int64_t n, int64_t k) {
  uint32_t found = 0;
  for (int bit = 30; bit >= 0; --bit) {
    const uint32_t candidate = found | (uint32_t{1} << bit);
    int64_t below = 0;
    for (int64_t i = 0; i < n; ++i) below += bits_as<uint32_t>(x[i]) < candidate ? 1 : 0;
    if (below < k) found = candidate;
  }
  return bits_as<float>(found);
}

struct ClipPercentileAttributes {
  double percentile = 90, factor = 1;
  int64_t min_history = 20;
};

DLTRAIN_HD void clip_percentile(const ClipPercentileAttributes& a, StepState& state, float* norms,
                                int64_t window) {
  if (state.out.finite == 0) return;
  const int64_t before = state.out.updates - 1, n = before < window ? before : window;
  if (n >= a.min_history && n > 0) {
    const auto rank = static_cast<int64_t>(std::ceil(a.percentile * static_cast<double>(n) / 100));
    const double limit =
        a.factor * static_cast<double>(kth_smallest(norms, n, rank < 1 ? 1 : rank));
    const double norm = state.out.grad_norm + 1e-6, most = state.in.max_grad_norm;
    const double clip = limit / (most > 0 && most < norm ? most : norm);
    if (clip < 1) state.out.gradient_factor *= clip;
  }
  norms[before % window] = static_cast<float>(state.out.grad_norm);
}

struct EmaAttributes {
  double decay = 0.999;
  int64_t start = 0;
  bool warmup = false;
};

// Returns the weight of the new value in the average.
DLTRAIN_HD double ema_share(const EmaAttributes& a, const StepState& state) {
  const double k = static_cast<double>(state.out.updates - a.start);
  if (k <= 1) return 1;
  const double limit = (1 + k) / (10 + k);
  return 1 - (a.warmup && limit < a.decay ? limit : a.decay);
}

}  // namespace dltrain
