// sgd_update: SGD with momentum, Nesterov momentum and L2 decay, as PyTorch defines them.
#include "ops/step_state.h"
#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

template <typename T>
struct SgdUpdate {
  explicit SgdUpdate(const NaiveCall& c)
      : count(static_cast<size_t>(c.attributes.integer("count"))),
        momentum(c.attributes.number("momentum")),
        weight_decay(c.attributes.number("weight_decay")),
        nesterov(c.attributes.boolean("nesterov")) {}

  void run(const NaiveCall& c) const {
    const StepState& state = *c.input<StepState>(0);
    if (state.out.finite == 0) return;
    for (size_t t = 0; t < count; ++t) {
      const T* gradient = c.input<T>(1 + count + t);
      T* p = c.output<T>(t);
      T* m = momentum != 0 ? c.output<T>(count + t) : nullptr;
      for (int64_t i = 0; i < c.outputs[t].shape.elements(); ++i) {
        const double g = gradient[i] * state.out.gradient_factor + weight_decay * p[i];
        double direction = g;
        if (m != nullptr) {
          const double velocity = momentum * m[i] + g;
          m[i] = static_cast<T>(velocity);
          direction = nesterov ? g + momentum * velocity : velocity;
        }
        p[i] = static_cast<T>(p[i] - state.in.learning_rate * direction);
      }
    }
  }

  size_t count;
  double momentum, weight_decay;
  bool nesterov;
};

}  // namespace

KernelPointer reference_sgd_update(const KernelRequest& request) {
  return make_naive<SgdUpdate>(request);
}

}  // namespace dltrain
