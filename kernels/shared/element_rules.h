// The update of one element by optimizers with independent elements, for host and device code.
// lib/ops/update.cpp gives the formulas and their sources.
//
// A rule is a struct of the op's attributes with
//   kMoments                     tensors of state besides the parameter
//   factors<T>(state, group)     constants of all elements of a tensor, computed in double from the
//                                StepState and rounded to T once
//   k8BitMoments                 whether these can be in 8 bits (moment_codes.h); absent: no
//   element(f, p, g, m)          the new parameter and moments from the (scaled, clipped) gradient
// Kernels are templates over the rule.
#pragma once

#include <string_view>

#include "ops/attributes.h"
#include "shared/update_rules.h"

namespace dltrain {

enum class Momentum { none, plain, nesterov };

template <Momentum kind>
struct SgdRule {
  static constexpr int kMoments = kind == Momentum::none ? 0 : 1;
  static constexpr bool k8BitMoments = kMoments > 0;
  double momentum = 0, dampening = 0;

  template <typename T>
  struct Factors {
    GradientView<T> gradient;
    T learning_rate, weight_decay, momentum;
    T keep;  // 1 − dampening; 1 in the first update
  };
  template <typename T>
  DLTRAIN_HD Factors<T> factors(const StepState& state, const GroupSettings& group) const {
    return {gradient_view<T>(state), static_cast<T>(state.in.learning_rate * group.lr_scale),
            static_cast<T>(group.weight_decay), static_cast<T>(momentum),
            static_cast<T>(state.out.updates == 1 ? 1 : 1 - dampening)};
  }
  template <typename T>
  static DLTRAIN_HD void element(const Factors<T>& f, T& p, T gradient, T* m) {
    const T g = gradient + f.weight_decay * p;
    T step = g;
    if constexpr (kind != Momentum::none) {
      m[0] = f.momentum * m[0] + f.keep * g;
      step = kind == Momentum::nesterov ? g + f.momentum * m[0] : m[0];
    }
    p = p - f.learning_rate * step;
  }
};

// Adam; with `decoupled` decay AdamW.
template <bool decoupled>
struct AdamRule {
  static constexpr int kMoments = 2;
  static constexpr bool k8BitMoments = true;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;

  template <typename T>
  struct Factors {
    GradientView<T> gradient;
    T keep;                   // of the parameter: 1 − lr·weight_decay, or 1
    T weight_decay;           // of the gradient
    T beta1, one_less_beta1;  // 1 − β₁, rounded after the subtraction
    T beta2, one_less_beta2;
    T step_size;  // lr / (1 − β₁ᵗ)
    T v_scale;    // 1 / √(1 − β₂ᵗ)
    T epsilon;
  };
  template <typename T>
  DLTRAIN_HD Factors<T> factors(const StepState& state, const GroupSettings& group) const {
    const double t = static_cast<double>(state.out.updates);
    const double lr = state.in.learning_rate * group.lr_scale;
    return {gradient_view<T>(state),
            static_cast<T>(decoupled ? 1 - lr * group.weight_decay : 1),
            static_cast<T>(decoupled ? 0 : group.weight_decay),
            static_cast<T>(beta1),
            static_cast<T>(1 - beta1),
            static_cast<T>(beta2),
            static_cast<T>(1 - beta2),
            static_cast<T>(lr / (1 - std::pow(beta1, t))),
            static_cast<T>(1 / std::sqrt(1 - std::pow(beta2, t))),
            static_cast<T>(epsilon)};
  }
  template <typename T>
  static DLTRAIN_HD void element(const Factors<T>& f, T& p, T gradient, T* m) {
    const T g = decoupled ? gradient : gradient + f.weight_decay * p;
    m[0] = f.beta1 * m[0] + f.one_less_beta1 * g;
    m[1] = f.beta2 * m[1] + f.one_less_beta2 * (g * g);
    p = f.keep * p - f.step_size * m[0] / (std::sqrt(m[1]) * f.v_scale + f.epsilon);
  }
};

struct AdagradRule {
  static constexpr int kMoments = 1;
  double lr_decay = 0, initial_accumulator_value = 0, epsilon = 1e-10;

  template <typename T>
  struct Factors {
    GradientView<T> gradient;
    T learning_rate, weight_decay, initial, epsilon;
  };
  template <typename T>
  DLTRAIN_HD Factors<T> factors(const StepState& state, const GroupSettings& group) const {
    const double before = static_cast<double>(state.out.updates - 1);
    return {gradient_view<T>(state),
            static_cast<T>(state.in.learning_rate * group.lr_scale / (1 + before * lr_decay)),
            static_cast<T>(group.weight_decay), static_cast<T>(initial_accumulator_value),
            static_cast<T>(epsilon)};
  }
  template <typename T>
  static DLTRAIN_HD void element(const Factors<T>& f, T& p, T gradient, T* m) {
    const T g = gradient + f.weight_decay * p;
    m[0] = m[0] + g * g;
    p = p - f.learning_rate * g / (std::sqrt(m[0] + f.initial) + f.epsilon);
  }
};

// Moments: mean of squares; if centered, mean of gradients; optionally momentum.
template <bool centered, bool with_momentum>
struct RmspropRule {
  static constexpr int kMoments = 1 + (centered ? 1 : 0) + (with_momentum ? 1 : 0);
  double alpha = 0.99, epsilon = 1e-8, momentum = 0;

  template <typename T>
  struct Factors {
    GradientView<T> gradient;
    T learning_rate, weight_decay, alpha, one_less_alpha, epsilon, momentum;
  };
  template <typename T>
  DLTRAIN_HD Factors<T> factors(const StepState& state, const GroupSettings& group) const {
    return {gradient_view<T>(state),
            static_cast<T>(state.in.learning_rate * group.lr_scale),
            static_cast<T>(group.weight_decay),
            static_cast<T>(alpha),
            static_cast<T>(1 - alpha),
            static_cast<T>(epsilon),
            static_cast<T>(momentum)};
  }
  template <typename T>
  static DLTRAIN_HD void element(const Factors<T>& f, T& p, T gradient, T* m) {
    const T g = gradient + f.weight_decay * p;
    m[0] = f.alpha * m[0] + f.one_less_alpha * (g * g);
    T variance = m[0];
    if constexpr (centered) {
      m[1] = f.alpha * m[1] + f.one_less_alpha * g;
      variance = variance - m[1] * m[1];
      variance = variance > 0 ? variance : T{0};  // it may be negative after rounding
    }
    T step = g / (std::sqrt(variance) + f.epsilon);
    if constexpr (with_momentum) {
      T& velocity = m[kMoments - 1];
      velocity = f.momentum * velocity + step;
      step = velocity;
    }
    p = p - f.learning_rate * step;
  }
};

struct LionRule {
  static constexpr int kMoments = 1;
  static constexpr bool k8BitMoments = true;
  double beta1 = 0.9, beta2 = 0.99;

  template <typename T>
  struct Factors {
    GradientView<T> gradient;
    T keep;  // 1 − lr·weight_decay
    T learning_rate, beta1, one_less_beta1, beta2, one_less_beta2;
  };
  template <typename T>
  DLTRAIN_HD Factors<T> factors(const StepState& state, const GroupSettings& group) const {
    const double lr = state.in.learning_rate * group.lr_scale;
    return {gradient_view<T>(state),   static_cast<T>(1 - lr * group.weight_decay),
            static_cast<T>(lr),        static_cast<T>(beta1),
            static_cast<T>(1 - beta1), static_cast<T>(beta2),
            static_cast<T>(1 - beta2)};
  }
  template <typename T>
  static DLTRAIN_HD void element(const Factors<T>& f, T& p, T g, T* m) {
    const T direction = f.beta1 * m[0] + f.one_less_beta1 * g;
    const T sign = direction > 0 ? T{1} : direction < 0 ? T{-1} : T{0};
    p = f.keep * p - f.learning_rate * sign;
    m[0] = f.beta2 * m[0] + f.one_less_beta2 * g;
  }
};

// Returns the updated parameter `p`, element `i` of a tensor; writes the moments. `tensors`: the
// parameter (not read), gradient and moments.
template <typename Rule, typename T>
DLTRAIN_HD T updated_element(const typename Rule::template Factors<T>& f, T p, T* const* tensors,
                             int64_t i) {
  T m[Rule::kMoments + 1];  // + 1: arrays cannot be empty
  for (int k = 0; k < Rule::kMoments; ++k) m[k] = tensors[2 + k][i];
  Rule::element(f, p, f.gradient(tensors[1][i]), m);
  for (int k = 0; k < Rule::kMoments; ++k) tensors[2 + k][i] = m[k];
  return p;
}

// Updates element `i` of a tensor: `tensors` are its parameter, gradient and moments.
template <typename Rule, typename T>
DLTRAIN_HD void update_element(const typename Rule::template Factors<T>& f, T* const* tensors,
                               int64_t i) {
  tensors[0][i] = updated_element<Rule>(f, tensors[0][i], tensors, i);
}

// List<every element rule>.
template <template <typename...> typename List>
using OverElementRules =
    List<SgdRule<Momentum::none>, SgdRule<Momentum::plain>, SgdRule<Momentum::nesterov>,
         AdamRule<false>, AdamRule<true>, AdagradRule, RmspropRule<false, false>,
         RmspropRule<false, true>, RmspropRule<true, false>, RmspropRule<true, true>, LionRule>;

// Returns use(rule) with the element rule of the op and its constants. `op` must have one.
template <typename Use>
auto with_element_rule(std::string_view op, const Attributes& a, const Use& use) {
  const double momentum = a.number("momentum");
  const double beta1 = a.number("beta1", 0.9);
  if (op == "adam_update" || op == "adamw_update") {
    const double beta2 = a.number("beta2", 0.999), epsilon = a.number("epsilon", 1e-8);
    if (op == "adam_update") return use(AdamRule<false>{beta1, beta2, epsilon});
    return use(AdamRule<true>{beta1, beta2, epsilon});
  }
  if (op == "adagrad_update") {
    return use(AdagradRule{a.number("lr_decay"), a.number("initial_accumulator_value"),
                           a.number("epsilon", 1e-10)});
  }
  if (op == "rmsprop_update") {
    const double alpha = a.number("alpha", 0.99), epsilon = a.number("epsilon", 1e-8);
    if (a.boolean("centered")) {
      if (momentum != 0) return use(RmspropRule<true, true>{alpha, epsilon, momentum});
      return use(RmspropRule<true, false>{alpha, epsilon, momentum});
    }
    if (momentum != 0) return use(RmspropRule<false, true>{alpha, epsilon, momentum});
    return use(RmspropRule<false, false>{alpha, epsilon, momentum});
  }
  if (op == "lion_update") return use(LionRule{beta1, a.number("beta2", 0.99)});
  const double dampening = a.number("dampening");
  if (momentum == 0) return use(SgdRule<Momentum::none>{momentum, dampening});
  if (a.boolean("nesterov")) return use(SgdRule<Momentum::nesterov>{momentum, dampening});
  return use(SgdRule<Momentum::plain>{momentum, dampening});
}

}  // namespace dltrain
