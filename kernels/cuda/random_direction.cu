#include "cuda/device_code.cuh"
#include "cuda/makers.h"
#include "ops/step_state.h"
#include "shared/make_kernel.h"
#include "tensor/normal_values.h"

namespace dltrain {
namespace {

constexpr int kBlock = 256;

template <typename T>
__global__ void direction_kernel(const StepState* state, T* y, uint64_t stream, int64_t count) {
  const StepInputs& in = state->in;
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    y[i] = static_cast<T>(
        normal_value(in.seed, stream, static_cast<uint64_t>(in.step), static_cast<uint64_t>(i)));
  }
}

}  // namespace

std::unique_ptr<Kernel> make_cuda_random_direction(const KernelRequest& request) {
  const int64_t count = request.outputs[0].shape.elements();
  const auto stream = static_cast<uint64_t>(request.attributes.integer("stream"));
  return make_kernel([=, dtype = request.outputs[0].dtype](const Bindings& b, Stream& queue) {
    if (count == 0) return;
    with_wide(dtype, [&]<typename T>(T) {
      DLTRAIN_LAUNCH(direction_kernel<T>, stride_grid(count, kBlock), kBlock, queue.native(),
                     b.input<StepState>(0), b.output<T>(0), stream, count);
    });
  });
}

}  // namespace dltrain
