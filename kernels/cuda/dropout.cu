// Dropout: y = x / (1 − rate) where kept, else 0 (lib/ops/dropout.cpp), element by element, or with
// one random number per channel of a sample (lib/ops/dropout2d.cpp). Philox computes the numbers of
// four adjacent elements at once, so a thread processes one such group: elements 4k … 4k+3 of the
// global batch; the micro-batch may begin inside a group. y may be x.
#include "base/philox.h"
#include "cuda/device_code.cuh"
#include "cuda/makers.h"
#include "ops/step_state.h"
#include "shared/bound_kernel.h"

namespace dltrain {
namespace {

struct DropoutCall {
  DType dtype;
  double rate;
  uint64_t stream;     // of random numbers
  int64_t count;       // elements of the micro-batch
  int64_t per_sample;  // elements
  int64_t channels;    // of dropout2d
};

constexpr int kBlock = 256;

template <typename T>
__global__ void dropout_kernel(const T* x, const StepState* state, T* y, double rate,
                               MathOf<T> scale, uint64_t stream, int64_t count,
                               int64_t per_sample) {
  const StepInputs& in = state->in;
  const uint64_t seed = in.seed, step = static_cast<uint64_t>(in.step);
  const int64_t first = in.sample_offset * per_sample;  // of the micro-batch, in the global batch
  const int64_t first_group = first / 4, groups = (first + count - 1) / 4 - first_group + 1;
  const uint64_t key = seed ^ (stream * 0x9E3779B97F4A7C15ull);  // as random_bits
  for (int64_t g = thread_index(); g < groups; g += thread_count()) {
    const uint64_t group = static_cast<uint64_t>(first_group + g);
    const Philox4 bits = philox4x32(key, group, (step << 20) ^ (stream >> 44));
    for (int j = 0; j < 4; ++j) {
      const int64_t i = (first_group + g) * 4 + j - first;
      if (i < 0 || i >= count) continue;
      const float uniform = static_cast<float>(bits.v[j] >> 8) * (1.0f / 16777216.0f);
      const bool kept = static_cast<double>(uniform) >= rate;
      y[i] = static_cast<T>(kept ? static_cast<MathOf<T>>(x[i]) * scale : MathOf<T>(0));
    }
  }
}

template <typename T>
__global__ void dropout2d_kernel(DropoutCall c, const T* x, const StepState* state, T* y) {
  using M = MathOf<T>;
  const StepInputs& in = state->in;
  for (int64_t i = thread_index(); i < c.count; i += thread_count()) {
    const int64_t draw = (in.sample_offset + i / c.per_sample) * c.channels + i % c.channels;
    const float uniform = random_uniform(in.seed, c.stream, static_cast<uint64_t>(in.step),
                                         static_cast<uint64_t>(draw));
    const bool kept = static_cast<double>(uniform) >= c.rate;
    y[i] = static_cast<T>(kept ? static_cast<M>(x[i]) * static_cast<M>(1 / (1 - c.rate)) : M(0));
  }
}

template <typename Run>
std::unique_ptr<Kernel> make_dropout_kernel(const KernelRequest& request, Run run) {
  const TensorSpec& x = request.inputs[0];
  if (!is_floating(x.dtype)) return nullptr;
  const DropoutCall call{.dtype = x.dtype,
                         .rate = request.attributes.number("rate"),
                         .stream = static_cast<uint64_t>(request.attributes.integer("stream")),
                         .count = x.shape.elements(),
                         .per_sample = x.shape.elements(1, x.shape.rank()),
                         .channels = x.shape[-1]};
  return make_kernel([call, run](const Bindings& b, Stream& stream) {
    if (call.count == 0) return;
    with_floating(call.dtype, [&](auto number) { run(call, b, stream, number); });
  });
}

}  // namespace

std::unique_ptr<Kernel> make_cuda_dropout(const KernelRequest& request) {
  return make_dropout_kernel(request, []<typename T>(const DropoutCall& c, const Bindings& b,
                                                     Stream& stream, T) {
    DLTRAIN_LAUNCH(dropout_kernel<T>, stride_grid(c.count / 4 + 2, kBlock), kBlock, stream.native(),
                   b.input<T>(0), b.input<StepState>(1), b.output<T>(0), c.rate,
                   static_cast<MathOf<T>>(1 / (1 - c.rate)), c.stream, c.count, c.per_sample);
  });
}

std::unique_ptr<Kernel> make_cuda_dropout2d(const KernelRequest& request) {
  return make_dropout_kernel(
      request, []<typename T>(const DropoutCall& c, const Bindings& b, Stream& stream, T) {
        DLTRAIN_LAUNCH(dropout2d_kernel<T>, stride_grid(c.count, kBlock), kBlock, stream.native(),
                       c, b.input<T>(0), b.input<StepState>(1), b.output<T>(0));
      });
}

}  // namespace dltrain
