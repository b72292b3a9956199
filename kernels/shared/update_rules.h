// Arithmetic of the update segment's kernels, on host and device: the results of gradient_norm in
// the StepState, scaling of gradients, groups of parameters, and running statistics. The rules of
// the optimizers are in element_rules.h; lib/ops/update.cpp gives the formulas.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/host_device.h"
#include "ops/step_state.h"

namespace dltrain {

inline constexpr double kGreatestLossScale = 16777216;  // 2²⁴: larger scales have no benefit

// Sets the loss scale of the next step.
DLTRAIN_HD void update_loss_scale(StepState& state, bool finite) {
  if (state.in.scale_growth_interval == 0) return;
  if (!finite) {
    state.out.loss_scale = state.out.loss_scale > 2 ? state.out.loss_scale / 2 : 1;
    state.out.scale_streak = 0;
    return;
  }
  state.out.scale_streak += 1;
  if (state.out.scale_streak < state.in.scale_growth_interval) return;
  if (state.out.loss_scale < kGreatestLossScale) state.out.loss_scale *= 2;
  state.out.scale_streak = 0;
}

// Ends gradient_norm: `sum_of_squares` is that of all gradients in memory (scaled by loss_scale). A
// sum that is not finite marks the step as skipped. With dynamic loss scaling it halves the scale,
// down to 1; a run of finite steps doubles it (Micikevicius et al. 2018; factors and interval as
// PyTorch's GradScaler).
DLTRAIN_HD void finish_gradient_norm(StepState& state, double sum_of_squares) {
  const bool finite = sum_of_squares - sum_of_squares == 0;  // false for NaN and infinities
  const double norm = std::sqrt(sum_of_squares) / state.out.loss_scale;
  double clip = 1;
  if (state.in.max_grad_norm > 0) {
    clip = state.in.max_grad_norm / (norm + 1e-6);
    if (!(clip < 1)) clip = 1;
  }
  state.out.grad_norm = norm;
  state.out.gradient_factor = clip / state.out.loss_scale;
  state.out.finite = finite ? 1 : 0;
  state.out.updates += finite ? 1 : 0;
  update_loss_scale(state, finite);
}

// running_norm: its attributes, and its arithmetic. `previous`: null without clipping.
struct RunningNorm {
  bool first = false, last = false;
};
DLTRAIN_HD void running_norm(const RunningNorm& part, StepState& state, double sum_of_squares,
                             double* previous) {
  const double scale = state.out.loss_scale;
  const bool finite = sum_of_squares - sum_of_squares == 0;
  if (part.first) {
    double clip = 1;
    if (previous != nullptr && state.in.max_grad_norm > 0) {
      clip = state.in.max_grad_norm / (*previous + 1e-6);
      if (!(clip < 1)) clip = 1;
    }
    state.out.grad_norm = 0;
    state.out.gradient_factor = clip / scale;
    state.out.finite = 1;
    state.out.updates += finite ? 1 : 0;
  }
  const double before = state.out.grad_norm;
  state.out.grad_norm = std::sqrt(before * before + sum_of_squares / (scale * scale));
  if (!finite) state.out.finite = 0;
  if (part.last && previous != nullptr && state.out.finite != 0) {
    *previous = state.out.grad_norm;
  }
}

// Settings of a group of parameters in an update op.
struct GroupSettings {
  double lr_scale = 1, weight_decay = 0;
};

// Scales a gradient for update ops, then limits it to ±limit (infinity: not limited).
template <typename T>
struct GradientView {
  T factor, limit;
  DLTRAIN_HD T operator()(T raw) const {
    const T g = raw * factor;
    return g > limit ? limit : g < -limit ? -limit : g;
  }
};

template <typename T>
DLTRAIN_HD GradientView<T> gradient_view(const StepState& state) {
  const double limit = state.in.max_grad_value;
  return {static_cast<T>(state.out.gradient_factor),
          limit > 0 ? static_cast<T>(limit) : static_cast<T>(INFINITY)};
}

// batch_norm_update: the new running value; `unbias` is 1 for the mean.
template <typename T>
DLTRAIN_HD T running_statistic(T running, T sum, double momentum, double groups, double unbias) {
  return running + static_cast<T>(momentum) * (sum * static_cast<T>(unbias / groups) - running);
}

}  // namespace dltrain
