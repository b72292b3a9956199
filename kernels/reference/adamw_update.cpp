// adamw_update: AdamW with bias correction (Loshchilov & Hutter 2019, algorithm 2).
#include <cmath>

#include "ops/step_state.h"
#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

template <typename T>
struct AdamwUpdate {
  explicit AdamwUpdate(const NaiveCall& c)
      : count(static_cast<size_t>(c.attributes.integer("count"))),
        beta1(c.attributes.number("beta1", 0.9)),
        beta2(c.attributes.number("beta2", 0.999)),
        epsilon(c.attributes.number("epsilon", 1e-8)),
        weight_decay(c.attributes.number("weight_decay")) {}

  void run(const NaiveCall& c) const {
    const StepState& state = *c.input<StepState>(0);
    if (state.out.finite == 0) return;
    const auto t = static_cast<double>(state.out.updates);
    const double correction1 = 1 - std::pow(beta1, t), correction2 = 1 - std::pow(beta2, t);
    const double lr = state.in.learning_rate;
    for (size_t k = 0; k < count; ++k) {
      const T* gradient = c.input<T>(1 + count + k);
      T *p = c.output<T>(k), *m = c.output<T>(count + k), *v = c.output<T>(2 * count + k);
      for (int64_t i = 0; i < c.outputs[k].shape.elements(); ++i) {
        const double g = gradient[i] * state.out.gradient_factor;
        const double first = beta1 * m[i] + (1 - beta1) * g;
        const double second = beta2 * v[i] + (1 - beta2) * g * g;
        m[i] = static_cast<T>(first);
        v[i] = static_cast<T>(second);
        const double decayed = p[i] - lr * weight_decay * p[i];
        const double root = std::sqrt(second / correction2) + epsilon;
        p[i] = static_cast<T>(decayed - lr * (first / correction1) / root);
      }
    }
  }

  size_t count;
  double beta1, beta2, epsilon, weight_decay;
};

}  // namespace

KernelPointer reference_adamw_update(const KernelRequest& request) {
  return make_naive<AdamwUpdate>(request);
}

}  // namespace dltrain
