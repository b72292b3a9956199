// loss_seed: loss_scale · inverse_valid, NaN for a loss that is not finite.
#include <cmath>

#include "ops/step_state.h"
#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

struct LossSeed {
  explicit LossSeed(const NaiveCall& c) : with_loss(c.inputs.size() == 2) {}

  void run(const NaiveCall& c) const {
    const StepState& state = *c.input<StepState>(0);
    const bool finite = !with_loss || std::isfinite(*c.input<double>(1));
    *c.output<double>(0) = finite ? state.out.loss_scale * state.in.inverse_valid : NAN;
  }

  bool with_loss;
};

}  // namespace

std::unique_ptr<Kernel> reference_loss_seed(const KernelRequest& request) {
  return std::make_unique<NaiveKernel<LossSeed>>(request);
}

}  // namespace dltrain
