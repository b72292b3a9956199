// group_norm over x [samples, places, channels] and its gradient (lib/ops/group_norm.cpp): one
// block per group of a sample; first the mean, then the deviations from it. Weight, bias and
// statistics have the accumulation dtype of x.
#include <cmath>

#include "cuda/device_code.cuh"
#include "cuda/makers.h"
#include "ops/rules.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

struct GroupNormCall {
  DType dtype;
  int64_t samples, spatial_size, channels, groups;
  double epsilon;
};

GroupNormCall group_norm_call(const KernelRequest& request) {
  const Shape& x = request.inputs[0].shape;
  return {.dtype = request.inputs[0].dtype,
          .samples = x[0],
          .spatial_size = x.elements(1, x.rank() - 1),
          .channels = x[-1],
          .groups = request.attributes.integer("groups", 1),
          .epsilon = request.attributes.number("epsilon", 1e-5)};
}

constexpr int kBlock = 256;

// The elements of one group of one sample.
struct Group {
  int64_t sample, group, width, first, count;
  __device__ explicit Group(const GroupNormCall& c)
      : sample(blockIdx.x / c.groups),
        group(blockIdx.x % c.groups),
        width(c.channels / c.groups),
        first(sample * c.spatial_size * c.channels + group * width),
        count(c.spatial_size * width) {}
  __device__ int64_t at(const GroupNormCall& c, int64_t i) const {
    return first + i / width * c.channels + i % width;
  }
  __device__ int64_t channel(int64_t i) const { return group * width + i % width; }
};

// Returns the channel's weight, 1 without weights.
template <typename M>
__device__ M weight_of(const M* weight, int64_t channel) {
  return weight == nullptr ? M(1) : weight[channel];
}

template <typename T>
__global__ void group_norm_kernel(GroupNormCall c, const T* x, const MathOf<T>* weight,
                                  const MathOf<T>* bias, T* y, MathOf<T>* mean, MathOf<T>* rstd) {
  using M = MathOf<T>;
  const Group g(c);
  M sum = 0;
  for (int64_t i = threadIdx.x; i < g.count; i += kBlock) sum += static_cast<M>(x[g.at(c, i)]);
  const M own_mean = block_sum(sum) / static_cast<M>(g.count);
  M squares = 0;
  for (int64_t i = threadIdx.x; i < g.count; i += kBlock) {
    const M distance = static_cast<M>(x[g.at(c, i)]) - own_mean;
    squares += distance * distance;
  }
  const M variance = block_sum(squares) / static_cast<M>(g.count);
  const M scale = M(1) / std::sqrt(variance + static_cast<M>(c.epsilon));
  for (int64_t i = threadIdx.x; i < g.count; i += kBlock) {
    const M normalised = (static_cast<M>(x[g.at(c, i)]) - own_mean) * scale;
    y[g.at(c, i)] = static_cast<T>(
        weight == nullptr ? normalised : normalised * weight[g.channel(i)] + bias[g.channel(i)]);
  }
  if (threadIdx.x == 0) {
    mean[blockIdx.x] = own_mean;
    rstd[blockIdx.x] = scale;
  }
}

// dx = rstd·(g − mean g − x̂·mean(g·x̂)) with g = dy·weight.
template <typename T>
__global__ void group_norm_backward_kernel(GroupNormCall c, const T* x, const T* dy,
                                           const MathOf<T>* weight, const MathOf<T>* mean,
                                           const MathOf<T>* rstd, T* dx) {
  using M = MathOf<T>;
  const Group g(c);
  const M own_mean = mean[blockIdx.x], scale = rstd[blockIdx.x];
  M plain = 0, weighted = 0;
  for (int64_t i = threadIdx.x; i < g.count; i += kBlock) {
    const M gradient = static_cast<M>(dy[g.at(c, i)]) * weight_of(weight, g.channel(i));
    plain += gradient;
    weighted += gradient * ((static_cast<M>(x[g.at(c, i)]) - own_mean) * scale);
  }
  plain = block_sum(plain) / static_cast<M>(g.count);
  weighted = block_sum(weighted) / static_cast<M>(g.count);
  for (int64_t i = threadIdx.x; i < g.count; i += kBlock) {
    const M gradient = static_cast<M>(dy[g.at(c, i)]) * weight_of(weight, g.channel(i));
    const M normalised = (static_cast<M>(x[g.at(c, i)]) - own_mean) * scale;
    dx[g.at(c, i)] = static_cast<T>(scale * (gradient - plain - normalised * weighted));
  }
}

// One thread per channel of a sample.
template <typename T>
__global__ void channel_sums_kernel(GroupNormCall c, const T* x, const T* dy, const MathOf<T>* mean,
                                    const MathOf<T>* rstd, MathOf<T>* partial) {
  using M = MathOf<T>;
  const int64_t i = thread_index();
  if (i >= c.samples * c.channels) return;
  const int64_t sample = i / c.channels, channel = i % c.channels;
  const int64_t group = sample * c.groups + channel / (c.channels / c.groups);
  M weighted = 0, plain = 0;
  for (int64_t pixel = 0; pixel < c.spatial_size; ++pixel) {
    const int64_t at = (sample * c.spatial_size + pixel) * c.channels + channel;
    const M gradient = static_cast<M>(dy[at]);
    weighted += gradient * ((static_cast<M>(x[at]) - mean[group]) * rstd[group]);
    plain += gradient;
  }
  partial[i] = weighted;
  partial[c.samples * c.channels + i] = plain;
}

template <typename M>
__global__ void join_samples_kernel(GroupNormCall c, const M* partial, M* dweight, M* dbias) {
  const int64_t channel = thread_index();
  if (channel >= c.channels) return;
  double weighted = 0, plain = 0;
  for (int64_t sample = 0; sample < c.samples; ++sample) {
    weighted += static_cast<double>(partial[sample * c.channels + channel]);
    plain += static_cast<double>(partial[(c.samples + sample) * c.channels + channel]);
  }
  dweight[channel] = static_cast<M>(weighted);
  dbias[channel] = static_cast<M>(plain);
}

template <typename T>
void group_norm_backward(const GroupNormCall& c, const Bindings& b, CudaStream stream) {
  using M = MathOf<T>;
  const T *x = b.input<T>(0), *dy = b.input<T>(1);
  const M *mean = b.input<M>(3), *rstd = b.input<M>(4);
  M *dweight = b.output<M>(1), *partial = static_cast<M*>(b.workspace);
  const auto blocks = [](int64_t threads) {
    return static_cast<unsigned>(divide_up(threads, kBlock));
  };
  if (c.samples > 0) {
    // Compute the sums first, since dx may overwrite dy.
    if (dweight != nullptr) {
      DLTRAIN_LAUNCH(channel_sums_kernel<T>, blocks(c.samples * c.channels), kBlock, stream, c, x,
                     dy, mean, rstd, partial);
    }
    DLTRAIN_LAUNCH(group_norm_backward_kernel<T>, static_cast<unsigned>(c.samples * c.groups),
                   kBlock, stream, c, x, dy, b.input<M>(2), mean, rstd, b.output<T>(0));
  }
  if (dweight == nullptr) return;
  DLTRAIN_LAUNCH(join_samples_kernel<M>, blocks(c.channels), kBlock, stream, c, partial, dweight,
                 b.output<M>(2));
}

}  // namespace

std::unique_ptr<Kernel> make_cuda_group_norm(const KernelRequest& request) {
  return make_kernel([c = group_norm_call(request)](const Bindings& b, Stream& stream) {
    if (c.samples * c.spatial_size * c.channels == 0) return;
    with_floating(c.dtype, [&]<typename T>(T) {
      using M = MathOf<T>;
      DLTRAIN_LAUNCH(group_norm_kernel<T>, static_cast<unsigned>(c.samples * c.groups), kBlock,
                     stream.native(), c, b.input<T>(0), b.input<M>(1), b.input<M>(2),
                     b.output<T>(0), b.output<M>(1), b.output<M>(2));
    });
  });
}

// (x, dy, weight, mean, rstd) → dx and, with a weight, dweight and dbias. The workspace contains
// each sample's part of dweight and dbias.
std::unique_ptr<Kernel> make_cuda_group_norm_backward(const KernelRequest& request) {
  const GroupNormCall c = group_norm_call(request);
  const auto run = [c](const Bindings& b, Stream& stream) {
    if (c.channels == 0) return;
    with_floating(c.dtype, [&]<typename T>(T) { group_norm_backward<T>(c, b, stream.native()); });
  };
  return make_kernel(run, static_cast<size_t>(2 * c.samples * c.channels) *
                              dtype_size(accumulation_dtype(c.dtype)));
}

}  // namespace dltrain
