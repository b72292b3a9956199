#include "ops/step_state.h"
#include "reference/call.h"
#include "reference/makers.h"
#include "tensor/normal_values.h"

namespace dltrain {

std::unique_ptr<Kernel> reference_random_direction(const KernelRequest& request) {
  return make_naive(request, request.outputs[0].dtype, []<typename T>(const NaiveCall& c, T) {
    const StepInputs& in = c.input<StepState>(0)->in;
    const auto stream = static_cast<uint64_t>(c.attributes.integer("stream"));
    for (int64_t i = 0; i < c.outputs[0].shape.elements(); ++i) {
      c.output<T>(0)[i] = static_cast<T>(
          normal_value(in.seed, stream, static_cast<uint64_t>(in.step), static_cast<uint64_t>(i)));
    }
  });
}

}  // namespace dltrain
