// Dropout: y = x / (1 − rate) where kept, else 0 (lib/ops/dropout.cpp), element by element, or with
// one random number per channel of a sample (lib/ops/dropout2d.cpp). Philox computes the numbers of
// four adjacent elements at once: elements 4k … 4k+3 of the global batch; the micro-batch may begin
// inside such a group. y may be x.
#include <cmath>

#include "cuda/device_code.cuh"
#include "cuda/makers.h"
#include "ops/shard_position.h"
#include "ops/step_state.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

struct DropoutCall {
  DType dtype;
  double rate;
  uint64_t stream;     // of random numbers
  int64_t count;       // elements of the micro-batch
  int64_t per_sample;  // elements
  int64_t channels;    // of dropout2d
  ShardPosition position;
};

constexpr int kBlock = 256;

// `packs`: x and y are aligned and whole. If the micro-batch begins inside a group, every element
// computes the numbers of its group.
template <typename T>
__global__ void dropout_kernel(const T* x, const StepState* state, T* y, uint32_t least,
                               MathOf<T> scale, uint64_t stream, int64_t count, int64_t per_sample,
                               ShardPosition position, bool packs) {
  using M = MathOf<T>;
  constexpr int kWidth = Pack<T>::size < 4 ? 4 : Pack<T>::size;
  const StepInputs& in = state->in;
  const int64_t first = in.sample_offset * per_sample;  // of the micro-batch, in the global batch
  const auto part = [&]<int N>(int64_t at) {
    M value[N];
    load_elements<T, N>(x, at, value);
    DLTRAIN_UNROLL
    for (int j = 0; j < N; j += 4) {
      const int64_t element = position.is_whole(count) ? at + j : position(at + j);
      const auto index = static_cast<uint64_t>(first + element);
      const Philox4 bits =
          random_block(in.seed, stream, static_cast<uint64_t>(in.step), index >> 2);
      for (int k = 0; k < (N < 4 ? N : 4); ++k) {
        const uint32_t own = N == 1 ? element_bits(bits, index) : bits.v[k];
        value[j + k] = own >> 8 >= least ? value[j + k] * scale : M(0);
      }
    }
    store_elements<T, N>(value, y, at);
  };
  sweep_elements<kWidth>(packs && first % 4 == 0 ? count / kWidth : 0, count, thread_index(),
                         thread_count(), part);
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
                         .channels = x.shape[-1],
                         .position = {request.attributes, x.shape.elements()}};
  return make_kernel([call, run](const Bindings& b, Stream& stream) {
    if (call.count == 0) return;
    with_floating(call.dtype, [&](auto number) { run(call, b, stream, number); });
  });
}

}  // namespace

std::unique_ptr<Kernel> make_cuda_dropout(const KernelRequest& request) {
  return make_dropout_kernel(
      request, []<typename T>(const DropoutCall& c, const Bindings& b, Stream& stream, T) {
        const bool packs = c.position.is_whole(c.count) && is_pack_aligned(b.inputs[0]) &&
                           is_pack_aligned(b.outputs[0]);
        // Uniform numbers have 24 bits.
        const auto least = static_cast<uint32_t>(std::ceil(c.rate * 16777216.0));
        DLTRAIN_LAUNCH(dropout_kernel<T>, stride_grid(c.count / 4 + 2, kBlock), kBlock,
                       stream.native(), b.input<T>(0), b.input<StepState>(1), b.output<T>(0), least,
                       static_cast<MathOf<T>>(1 / (1 - c.rate)), c.stream, c.count,
                       c.position.whole(c.per_sample), c.position, packs);
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
