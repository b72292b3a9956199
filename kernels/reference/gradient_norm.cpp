// gradient_norm: norm, finite flag and factor of the step.
#include <algorithm>
#include <cmath>

#include "ops/step_state.h"
#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

template <typename T>
struct GradientNorm {
  explicit GradientNorm(const NaiveCall&) {}

  void run(const NaiveCall& c) const {
    double squares = 0;
    for (size_t g = 1; g < c.inputs.size(); ++g) {
      for (int64_t i = 0; i < c.inputs[g].shape.elements(); ++i) {
        squares += double{c.input<T>(g)[i]} * c.input<T>(g)[i];
      }
    }
    StepState& state = *c.output<StepState>(0);
    const double norm = std::sqrt(squares) / state.in.loss_scale;
    const double limit = state.in.max_grad_norm;
    const double clipping = limit > 0 ? std::min(1.0, limit / (norm + 1e-6)) : 1;
    state.out.grad_norm = norm;
    state.out.gradient_factor = clipping / state.in.loss_scale;
    state.out.finite = std::isfinite(norm) ? 1 : 0;
    state.out.updates += state.out.finite;
  }
};

}  // namespace

KernelPointer reference_gradient_norm(const KernelRequest& request) {
  return make_naive<GradientNorm>(request);
}

}  // namespace dltrain
