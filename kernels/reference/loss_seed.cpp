// loss_seed: loss_scale · inverse_valid.
#include "ops/step_state.h"
#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

struct LossSeed {
  explicit LossSeed(const NaiveCall&) {}

  void run(const NaiveCall& c) const {
    const StepInputs& state = c.input<StepState>(0)->in;
    *c.output<double>(0) = state.loss_scale * state.inverse_valid;
  }
};

}  // namespace

KernelPointer reference_loss_seed(const KernelRequest& request) {
  return std::make_unique<NaiveKernel<LossSeed>>(request);
}

}  // namespace dltrain
