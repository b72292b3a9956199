#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "ops/step_state.h"
#include "shared/make_kernel.h"
#include "tensor/normal_values.h"

namespace dltrain {

std::unique_ptr<Kernel> make_random_direction(const KernelRequest& request) {
  constexpr int64_t kGrain = 8192;  // even, as normal_values wants the first element
  if (request.outputs[0].dtype != DType::f32) return nullptr;
  const int64_t count = request.outputs[0].shape.elements();
  const auto stream = static_cast<uint64_t>(request.attributes.integer("stream"));
  return make_kernel([=](const Bindings& b, Stream&) {
    const StepInputs& in = b.input<StepState>(0)->in;
    const std::span<float> y(b.output<float>(0), static_cast<size_t>(count));
    parallel_each((count + kGrain - 1) / kGrain, 1, [&](int64_t block) {
      const int64_t begin = block * kGrain;
      const auto values = y.subspan(static_cast<size_t>(begin));
      normal_values(in.seed, stream, static_cast<uint64_t>(in.step), static_cast<uint64_t>(begin),
                    1, 0, values.first(std::min<size_t>(values.size(), kGrain)));
    });
  });
}

}  // namespace dltrain
