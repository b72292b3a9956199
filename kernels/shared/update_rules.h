// Arithmetic of the update segment, for host and device code: what gradient_norm writes into the
// StepState, and what SGD and AdamW do to one element. lib/ops/update.cpp gives the formulas.
//
// Per-step factors are computed once in double from StepState and rounded to T; the element
// functions then work in T (f32 masters: T = float).
#pragma once

#include <cmath>
#include <cstdint>

#include "base/host_device.h"
#include "ops/step_state.h"

namespace dltrain {

inline constexpr double kGreatestLossScale = 16777216;  // 2²⁴: beyond it nothing more is gained

// The scale of the next step.
DLTRAIN_HD void move_loss_scale(StepState& state, bool finite) {
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

// Ends gradient_norm: `sum_of_squares` is that of all gradients as they lie in memory (scaled by
// loss_scale). A sum that is not finite marks the step as one that changes nothing. With dynamic
// loss scaling it halves the scale, down to 1; a run of finite steps doubles it (Micikevicius et
// al. 2018; factors and interval as PyTorch's GradScaler).
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
  move_loss_scale(state, finite);
}

struct SgdAttributes {
  double momentum = 0, weight_decay = 0;
  bool nesterov = false;
};

template <typename T>
struct SgdFactors {
  T gradient_factor, learning_rate, momentum, weight_decay;
};

template <typename T>
DLTRAIN_HD SgdFactors<T> sgd_factors(const SgdAttributes& a, const StepState& state) {
  return {static_cast<T>(state.out.gradient_factor), static_cast<T>(state.in.learning_rate),
          static_cast<T>(a.momentum), static_cast<T>(a.weight_decay)};
}

// Plain SGD, without momentum.
template <typename T>
DLTRAIN_HD void sgd_element(const SgdFactors<T>& f, T& p, T gradient) {
  p = p - f.learning_rate * (gradient * f.gradient_factor + f.weight_decay * p);
}

template <bool nesterov, typename T>
DLTRAIN_HD void sgd_momentum_element(const SgdFactors<T>& f, T& p, T gradient, T& m) {
  const T g = gradient * f.gradient_factor + f.weight_decay * p;
  m = f.momentum * m + g;
  p = p - f.learning_rate * (nesterov ? g + f.momentum * m : m);
}

struct AdamwAttributes {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.01;
};

template <typename T>
struct AdamwFactors {
  T gradient_factor;
  T keep;                   // 1 − lr·weight_decay
  T beta1, one_less_beta1;  // 1 − β₁, rounded after the subtraction
  T beta2, one_less_beta2;
  T step_size;  // lr / (1 − β₁ᵗ)
  T v_scale;    // 1 / √(1 − β₂ᵗ)
  T epsilon;
};

template <typename T>
DLTRAIN_HD AdamwFactors<T> adamw_factors(const AdamwAttributes& a, const StepState& state) {
  const double t = static_cast<double>(state.out.updates), lr = state.in.learning_rate;
  return {static_cast<T>(state.out.gradient_factor),
          static_cast<T>(1 - lr * a.weight_decay),
          static_cast<T>(a.beta1),
          static_cast<T>(1 - a.beta1),
          static_cast<T>(a.beta2),
          static_cast<T>(1 - a.beta2),
          static_cast<T>(lr / (1 - std::pow(a.beta1, t))),
          static_cast<T>(1 / std::sqrt(1 - std::pow(a.beta2, t))),
          static_cast<T>(a.epsilon)};
}

template <typename T>
DLTRAIN_HD void adamw_element(const AdamwFactors<T>& f, T& p, T gradient, T& m, T& v) {
  const T g = gradient * f.gradient_factor;
  m = f.beta1 * m + f.one_less_beta1 * g;
  v = f.beta2 * v + f.one_less_beta2 * (g * g);
  p = f.keep * p - f.step_size * m / (std::sqrt(v) * f.v_scale + f.epsilon);
}

// batch_norm_update: the new running value; `unbias` is 1 for the mean.
template <typename T>
DLTRAIN_HD T running_statistic(T running, T sum, double momentum, double groups, double unbias) {
  return running + static_cast<T>(momentum) * (sum * static_cast<T>(unbias / groups) - running);
}

}  // namespace dltrain
