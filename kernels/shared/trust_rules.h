// Arithmetic of the optimizers that scale the step of a whole tensor by norms (LARS, LAMB), for
// host and device code. lib/ops/update_adaptive.cpp gives the formulas and their sources.
#pragma once

#include "shared/update_rules.h"

namespace dltrain {

// Returns true if the step of a tensor is scaled: not if a norm is 0, nor without decay unless
// `always`.
DLTRAIN_HD bool scales_step(double parameter_norm, double other_norm, double weight_decay,
                            bool always) {
  return (always || weight_decay != 0) && parameter_norm > 0 && other_norm > 0;
}

// LARS: the trust ratio of a tensor; 1 if its step is not scaled.
struct LarsTrust {
  double coefficient = 1e-3, epsilon = 1e-8;
  bool always = false;

  DLTRAIN_HD double operator()(double parameter_norm, double gradient_norm,
                               double weight_decay) const {
    if (!scales_step(parameter_norm, gradient_norm, weight_decay, always)) return 1;
    return coefficient * parameter_norm / (gradient_norm + weight_decay * parameter_norm + epsilon);
  }
};

// Scales gradient and decay of the SGD step that follows.
template <typename Factors, typename T>
DLTRAIN_HD void scale_by_trust(Factors& f, T trust) {
  f.gradient.factor *= trust;
  f.gradient.limit *= trust;
  f.weight_decay *= trust;
}

struct LambRule {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-6;
  bool always = false;

  // The trust ratio of a tensor; 1 if its step is not scaled.
  DLTRAIN_HD double trust(double parameter_norm, double direction_norm, double weight_decay) const {
    if (!scales_step(parameter_norm, direction_norm, weight_decay, always)) return 1;
    return parameter_norm / direction_norm;
  }

  template <typename T>
  struct Factors {
    GradientView<T> gradient;
    T beta1, one_less_beta1, beta2, one_less_beta2;
    T m_scale;  // 1 / (1 − β₁ᵗ)
    T v_scale;  // 1 / √(1 − β₂ᵗ)
    T epsilon, weight_decay;
    T step_size;  // lr · trust, computed after all directions of the tensor
  };
  template <typename T>
  DLTRAIN_HD Factors<T> factors(const StepState& state, const GroupSettings& group) const {
    const double t = static_cast<double>(state.out.updates);
    return {gradient_view<T>(state),
            static_cast<T>(beta1),
            static_cast<T>(1 - beta1),
            static_cast<T>(beta2),
            static_cast<T>(1 - beta2),
            static_cast<T>(1 / (1 - std::pow(beta1, t))),
            static_cast<T>(1 / std::sqrt(1 - std::pow(beta2, t))),
            static_cast<T>(epsilon),
            static_cast<T>(group.weight_decay),
            T{0}};
  }
  template <typename T>
  static DLTRAIN_HD void moments(const Factors<T>& f, T g, T& m, T& v) {
    m = f.beta1 * m + f.one_less_beta1 * g;
    v = f.beta2 * v + f.one_less_beta2 * (g * g);
  }
  template <typename T>
  static DLTRAIN_HD T direction(const Factors<T>& f, T p, T m, T v) {
    return m * f.m_scale / (std::sqrt(v) * f.v_scale + f.epsilon) + f.weight_decay * p;
  }
};

}  // namespace dltrain
