// loss_seed: loss_scale · inverse_valid, NaN for a loss that is not finite.
#include <cmath>

#include "ops/step_state.h"
#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {
std::unique_ptr<Kernel> reference_loss_seed(const KernelRequest& request) {
  return make_naive_of<double>(request, [](const NaiveCall& c, double) {
    const StepState& state = *c.input<StepState>(0);
    const bool finite = c.inputs.size() < 2 || std::isfinite(*c.input<double>(1));
    *c.output<double>(0) = finite ? state.out.loss_scale * state.in.inverse_valid : NAN;
  });
}

}  // namespace dltrain
