#include "ops/step_state.h"
#include "reference/call.h"
#include "reference/makers.h"
#include "tensor/normal_values.h"

namespace dltrain {

std::unique_ptr<Kernel> reference_random_direction(const KernelRequest& request) {
  const int64_t count = request.outputs[0].shape.elements();
  const DType dtype = request.outputs[0].dtype;
  const auto stream = static_cast<uint64_t>(request.attributes.integer("stream"));
  return make_kernel([=](const Bindings& b, Stream&) {
    const StepInputs& in = b.input<StepState>(0)->in;
    for (int64_t i = 0; i < count; ++i) {
      const double value =
          normal_value(in.seed, stream, static_cast<uint64_t>(in.step), static_cast<uint64_t>(i));
      if (dtype == DType::f64) {
        b.output<double>(0)[i] = value;
      } else {
        b.output<float>(0)[i] = static_cast<float>(value);
      }
    }
  });
}

}  // namespace dltrain
