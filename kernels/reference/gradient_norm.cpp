// gradient_norm: norm, finite flag and factor of the step; sum_of_squares.
#include <algorithm>
#include <cmath>

#include "ops/step_state.h"
#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

template <typename T>
double squares_from(const NaiveCall& c, size_t first) {
  double squares = 0;
  for (size_t g = first; g < c.inputs.size(); ++g) {
    for (int64_t i = 0; i < c.inputs[g].shape.elements(); ++i) {
      squares += double{c.input<T>(g)[i]} * c.input<T>(g)[i];
    }
  }
  return squares;
}

void scale_loss(StepState& state) {
  double& scale = state.out.loss_scale;
  int64_t& streak = state.out.scale_streak;
  streak = state.out.finite != 0 ? streak + 1 : 0;
  if (state.out.finite == 0) scale = std::max(1.0, scale / 2);
  if (streak < state.in.scale_growth_interval) return;
  scale = std::min(scale * 2, 16777216.0);
  streak = 0;
}

}  // namespace

std::unique_ptr<Kernel> reference_gradient_norm(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    StepState& state = *c.output<StepState>(0);
    const double norm = std::sqrt(squares_from<T>(c, 1)) / state.out.loss_scale;
    const double limit = state.in.max_grad_norm;
    const double clipping = limit > 0 ? std::min(1.0, limit / (norm + 1e-6)) : 1;
    state.out.grad_norm = norm;
    state.out.gradient_factor = clipping / state.out.loss_scale;
    state.out.finite = std::isfinite(norm) ? 1 : 0;
    state.out.updates += state.out.finite;
    if (state.in.scale_growth_interval > 0) scale_loss(state);
  });
}
std::unique_ptr<Kernel> reference_sum_of_squares(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    *c.output<double>(0) = squares_from<T>(c, 0);
  });
}

}  // namespace dltrain
