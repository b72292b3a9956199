// loss_seed: loss_scale times inverse_valid or the weights, NaN for a loss that is not finite.
#include <cmath>

#include "ops/step_state.h"
#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {
std::unique_ptr<Kernel> reference_loss_seed(const KernelRequest& request) {
  return make_naive_of<double>(request, [](const NaiveCall& c, double) {
    const StepState& state = *c.input<StepState>(0);
    const auto weights = c.attributes.numbers("weights", {state.in.inverse_valid});
    for (size_t i = 0; i < weights.size(); ++i) {
      const bool finite = !c.has_input(1) || std::isfinite(c.input<double>(1)[i]);
      c.output<double>(0)[i] = finite ? state.out.loss_scale * weights[i] : NAN;
    }
  });
}

}  // namespace dltrain
