// The ops of mixtures of experts but the products (lib/ops/experts.cpp). Pairs are sorted by one
// block for each expert, which counts and places its pairs in order, without atomic operations.
// Sums are taken in a fixed order.
#include "cuda/device_code.cuh"
#include "cuda/makers.h"
#include "shared/expert_rules.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

constexpr int kExpertBlock = 256;

template <typename T>
__global__ void route_kernel(RouterSizes s, const T* p, T* weights, int32_t* chosen) {
  for (int64_t t = thread_index(); t < s.tokens; t += thread_count()) {
    route_token(p + t * s.experts, s.experts, s.k, s.normalize, weights + t * s.k,
                chosen + t * s.k);
  }
}

// One block for each expert; each thread has a run of pairs. The rows of an expert follow those of
// the experts before it.
__global__ void place_pairs_kernel(const int32_t* chosen, int64_t pairs, int32_t* rows,
                                   int32_t* sources, int32_t* offsets) {
  __shared__ int32_t before[kExpertBlock];
  const auto expert = static_cast<int32_t>(blockIdx.x);
  const int64_t run = divide_up(pairs, kExpertBlock), begin = threadIdx.x * run;
  const int64_t end = begin + run < pairs ? begin + run : pairs;
  int32_t own = 0, less = 0;
  for (int64_t i = begin; i < end; ++i) {
    own += chosen[i] == expert ? 1 : 0;
    less += chosen[i] < expert ? 1 : 0;
  }
  before[threadIdx.x] = own;
  const int32_t first = block_sum(less);
  if (threadIdx.x == 0) {
    int32_t row = offsets[expert] = first;
    for (int i = 0; i < kExpertBlock; ++i) {
      const int32_t count = before[i];
      before[i] = row;
      row += count;
    }
    if (blockIdx.x + 1 == gridDim.x) offsets[expert + 1] = row;
  }
  __syncthreads();
  int32_t row = before[threadIdx.x];
  for (int64_t i = begin; i < end; ++i) {
    if (chosen[i] != expert) continue;
    rows[i] = row;
    sources[row++] = static_cast<int32_t>(i);
  }
}

template <typename T>
__global__ void route_backward_kernel(RouterSizes s, const T* p, const int32_t* chosen,
                                      const T* dweights, T* dp) {
  for (int64_t t = thread_index(); t < s.tokens; t += thread_count()) {
    route_token_backward(p + t * s.experts, chosen + t * s.k, dweights + t * s.k, s.experts, s.k,
                         s.normalize, dp + t * s.experts);
  }
}

template <typename T>
__global__ void dispatch_kernel(MoveSizes s, const T* x, const int32_t* sources,
                                const MathOf<T>* weights, T* y) {
  using M = MathOf<T>;
  for (int64_t i = thread_index(); i < s.rows * s.width; i += thread_count()) {
    const int32_t pair = sources[i / s.width];
    if (pair < 0) {
      y[i] = static_cast<T>(M(0));
      continue;
    }
    const M weight = s.weighted ? weights[pair] : M(1);
    y[i] = static_cast<T>(weight * static_cast<M>(x[pair / s.k * s.width + i % s.width]));
  }
}

template <typename T>
__global__ void combine_kernel(MoveSizes s, const T* y, const int32_t* rows,
                               const MathOf<T>* weights, T* out) {
  using M = MathOf<T>;
  for (int64_t i = thread_index(); i < s.pairs / s.k * s.width; i += thread_count()) {
    M sum = 0;
    for (int64_t j = 0; j < s.k; ++j) {
      const int64_t pair = i / s.width * s.k + j;
      const M weight = s.weighted ? weights[pair] : M(1);
      const int32_t row = rows[pair];
      sum +=
          row < 0 ? missing_row<M>(row) : weight * static_cast<M>(y[row * s.width + i % s.width]);
    }
    out[i] = static_cast<T>(sum);
  }
}

__global__ void clear_places_kernel(int32_t* sources, int64_t count) {
  for (int64_t i = thread_index(); i < count; i += thread_count()) sources[i] = kNoRow;
}

__global__ void count_kept_kernel(RowPlaces p, RoutedRows routed, int32_t* counts) {
  for (int64_t e = thread_index(); e < p.ranks * p.local; e += thread_count()) {
    counts[e] = p.kept(routed, e);
  }
}

__global__ void place_rows_kernel(RowPlaces p, RoutedRows routed, const int32_t* counts,
                                  int32_t* places, int32_t* sources) {
  for (int64_t i = thread_index(); i < p.pairs; i += thread_count()) {
    places[i] = p.place(routed.offsets, counts, routed.rows[i]);
    if (places[i] >= 0) sources[places[i]] = static_cast<int32_t>(i);
  }
}

__global__ void finish_place_kernel(RowPlaces p, int32_t* counts, int32_t* sent, double* sums,
                                    int64_t bins) {
  p.finish_place(counts, sent, sums, bins);
}

__global__ void finish_sort_kernel(RowPlaces p, const int32_t* counts, int32_t* offsets,
                                   int32_t* received) {
  p.finish_sort(counts, offsets, received);
}

__global__ void sort_received_kernel(RowPlaces p, const int32_t* counts, const int32_t* offsets,
                                     int32_t* sources, int32_t* rows) {
  for (int64_t i = thread_index(); i < p.ranks * p.buffer; i += thread_count()) {
    rows[i] = p.sorted(counts, offsets, i / p.buffer, i % p.buffer);
    if (rows[i] >= 0) sources[rows[i]] = static_cast<int32_t>(i);
  }
}

// One warp for each pair.
template <typename T>
__global__ void combine_backward_weights_kernel(MoveSizes s, const T* dout, const T* y,
                                                const int32_t* rows, MathOf<T>* dweights) {
  using M = MathOf<T>;
  const int64_t pair = thread_index() / kWarp;
  if (pair >= s.pairs) return;  // uniform over a warp
  const int32_t row = rows[pair];
  const T *a = dout + pair / s.k * s.width, *b = y + (row < 0 ? 0 : row) * s.width;
  M sum = missing_row<M>(row);
  for (int64_t d = threadIdx.x % kWarp; row >= 0 && d < s.width; d += kWarp) {
    sum += static_cast<M>(a[d]) * static_cast<M>(b[d]);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % kWarp == 0) dweights[pair] = sum;
}

// A thread for each token. A block writes its sums of the probabilities of each expert, then of
// z-loss and entropy.
template <typename T>
__global__ void router_sums_kernel(RouterSizes s, const T* logits, double* partial) {
  const int64_t t = thread_index();
  const bool inside = t < s.tokens;
  const T* x = logits + (inside ? t : 0) * s.experts;
  const T offset = log_sum_exp(x, s.experts);
  double* out = partial + int64_t{blockIdx.x} * (s.experts + 2);
  double entropy = 0;
  for (int64_t e = 0; e < s.experts; ++e) {
    const double p = inside ? static_cast<double>(std::exp(x[e] - offset)) : 0.0;
    if (p > 0) entropy -= p * static_cast<double>(x[e] - offset);
    const double sum = block_sum(p);
    if (threadIdx.x == 0) out[e] = sum;
  }
  const double z = block_sum(inside ? static_cast<double>(offset) * offset : 0.0);
  entropy = block_sum(entropy);
  if (threadIdx.x == 0) {
    out[s.experts] = z;
    out[s.experts + 1] = entropy;
  }
}

// One block, which adds up the sums of all.
__global__ void router_losses_kernel(RouterSizes s, const double* partial, int64_t parts,
                                     const int32_t* offsets, double* losses, double* sums) {
  const auto count = static_cast<double>(s.tokens);
  double balance = 0;
  for (int64_t i = threadIdx.x; i < s.experts + 2; i += kExpertBlock) {
    double sum = 0;
    for (int64_t part = 0; part < parts; ++part) sum += partial[part * (s.experts + 2) + i];
    if (i < s.experts) {
      sums[i] = offsets[i + 1] - offsets[i];
      balance += static_cast<double>(s.experts) * sums[i] / count * sum;
    } else {
      sums[i + 1] = sum;
      if (i == s.experts) losses[1] = sum / count;
    }
  }
  balance = block_sum(balance);
  if (threadIdx.x == 0) {
    sums[s.experts] = balance;
    losses[0] = balance / count;
  }
}

template <typename T>
__global__ void router_losses_backward_kernel(RouterSizes s, const T* logits,
                                              const int32_t* offsets, const double* dlosses,
                                              T* dlogits) {
  for (int64_t t = thread_index(); t < s.tokens; t += thread_count()) {
    router_losses_backward_token(logits + t * s.experts, offsets, dlosses, s.tokens, s.experts,
                                 dlogits + t * s.experts);
  }
}

bool is_wide(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64;
}

// A kernel launch(T{}, bindings, stream) over `count` items.
template <typename Launch>
std::unique_ptr<Kernel> make_expert_kernel(DType dtype, int64_t count, Launch launch) {
  return make_kernel([=](const Bindings& b, Stream& stream) {
    if (count > 0) with_floating(dtype, [&](auto zero) { launch(zero, b, stream.native()); });
  });
}

}  // namespace

std::unique_ptr<Kernel> make_cuda_top_k_routing(const KernelRequest& request) {
  const RouterSizes s(request);
  if (!is_wide(s.dtype)) return nullptr;
  return make_kernel([s](const Bindings& b, Stream& stream) {
    if (s.tokens == 0) return;
    auto* chosen = b.output<int32_t>(1);
    with_wide(s.dtype, [&]<typename T>(T) {
      DLTRAIN_LAUNCH(route_kernel<T>, stride_grid(s.tokens, kExpertBlock), kExpertBlock,
                     stream.native(), s, b.input<T>(0), b.output<T>(0), chosen);
    });
    DLTRAIN_LAUNCH(place_pairs_kernel, static_cast<unsigned>(s.experts), kExpertBlock,
                   stream.native(), chosen, s.tokens * s.k, b.output<int32_t>(2),
                   b.output<int32_t>(3), b.output<int32_t>(4));
  });
}

std::unique_ptr<Kernel> make_cuda_top_k_routing_backward(const KernelRequest& request) {
  const RouterSizes s(request);
  if (!is_wide(s.dtype)) return nullptr;
  return make_kernel([s](const Bindings& b, Stream& stream) {
    if (s.tokens == 0) return;
    with_wide(s.dtype, [&]<typename T>(T) {
      DLTRAIN_LAUNCH(route_backward_kernel<T>, stride_grid(s.tokens, kExpertBlock), kExpertBlock,
                     stream.native(), s, b.input<T>(0), b.input<int32_t>(1), b.input<T>(2),
                     b.output<T>(0));
    });
  });
}

std::unique_ptr<Kernel> make_cuda_dispatch_tokens(const KernelRequest& request) {
  const MoveSizes s(request);
  const int64_t count = s.rows * s.width;
  return make_expert_kernel(
      s.dtype, count, [=]<typename T>(T, const Bindings& b, CudaStream stream) {
        DLTRAIN_LAUNCH(dispatch_kernel<T>, stride_grid(count, kExpertBlock), kExpertBlock, stream,
                       s, b.input<T>(0), b.input<int32_t>(1), b.input<MathOf<T>>(3),
                       b.output<T>(0));
      });
}

std::unique_ptr<Kernel> make_cuda_place_rows(const KernelRequest& request) {
  const int64_t bins = request.outputs[4].shape[0] - 2;
  return make_kernel([p = RowPlaces(request), bins](const Bindings& b, Stream& stream) {
    const RoutedRows routed(b);
    const int64_t room = p.ranks * p.buffer;
    DLTRAIN_LAUNCH(clear_places_kernel, stride_grid(room, kExpertBlock), kExpertBlock,
                   stream.native(), b.output<int32_t>(1), room);
    DLTRAIN_LAUNCH(count_kept_kernel, stride_grid(p.ranks * p.local, kExpertBlock), kExpertBlock,
                   stream.native(), p, routed, b.output<int32_t>(2));
    DLTRAIN_LAUNCH(place_rows_kernel, stride_grid(p.pairs, kExpertBlock), kExpertBlock,
                   stream.native(), p, routed, b.output<int32_t>(2), b.output<int32_t>(0),
                   b.output<int32_t>(1));
    DLTRAIN_LAUNCH(finish_place_kernel, 1u, 1, stream.native(), p, b.output<int32_t>(2),
                   b.output<int32_t>(3), b.output<double>(4), bins);
  });
}

std::unique_ptr<Kernel> make_cuda_sort_received(const KernelRequest& request) {
  return make_kernel([p = RowPlaces(request)](const Bindings& b, Stream& stream) {
    const int64_t room = p.ranks * p.buffer;
    DLTRAIN_LAUNCH(finish_sort_kernel, 1u, 1, stream.native(), p, b.input<int32_t>(0),
                   b.output<int32_t>(2), b.output<int32_t>(3));
    DLTRAIN_LAUNCH(clear_places_kernel, stride_grid(room, kExpertBlock), kExpertBlock,
                   stream.native(), b.output<int32_t>(0), room);
    DLTRAIN_LAUNCH(sort_received_kernel, stride_grid(room, kExpertBlock), kExpertBlock,
                   stream.native(), p, b.input<int32_t>(0), b.output<int32_t>(2),
                   b.output<int32_t>(0), b.output<int32_t>(1));
  });
}

std::unique_ptr<Kernel> make_cuda_combine_experts(const KernelRequest& request) {
  const MoveSizes s(request);
  const int64_t count = s.pairs / s.k * s.width;
  return make_expert_kernel(
      s.dtype, count, [=]<typename T>(T, const Bindings& b, CudaStream stream) {
        DLTRAIN_LAUNCH(combine_kernel<T>, stride_grid(count, kExpertBlock), kExpertBlock, stream, s,
                       b.input<T>(0), b.input<int32_t>(1), b.input<MathOf<T>>(3), b.output<T>(0));
      });
}

std::unique_ptr<Kernel> make_cuda_combine_experts_backward_weights(const KernelRequest& request) {
  const MoveSizes s(request);
  const auto grid = static_cast<unsigned>(divide_up(s.pairs, kExpertBlock / kWarp));
  return make_expert_kernel(
      s.dtype, s.pairs, [=]<typename T>(T, const Bindings& b, CudaStream stream) {
        DLTRAIN_LAUNCH(combine_backward_weights_kernel<T>, grid, kExpertBlock, stream, s,
                       b.input<T>(0), b.input<T>(1), b.input<int32_t>(2), b.output<MathOf<T>>(0));
      });
}

std::unique_ptr<Kernel> make_cuda_router_losses(const KernelRequest& request) {
  const RouterSizes s(request);
  if (!is_wide(s.dtype)) return nullptr;
  const int64_t parts = divide_up(s.tokens, kExpertBlock);
  const auto run = [=](const Bindings& b, Stream& stream) {
    if (s.tokens == 0) return;
    auto* partial = static_cast<double*>(b.workspace);
    with_wide(s.dtype, [&]<typename T>(T) {
      DLTRAIN_LAUNCH(router_sums_kernel<T>, static_cast<unsigned>(parts), kExpertBlock,
                     stream.native(), s, b.input<T>(0), partial);
    });
    DLTRAIN_LAUNCH(router_losses_kernel, 1u, kExpertBlock, stream.native(), s, partial, parts,
                   b.input<int32_t>(1), b.output<double>(0), b.output<double>(1));
  };
  return make_kernel(run, static_cast<size_t>(parts * (s.experts + 2)) * sizeof(double));
}

std::unique_ptr<Kernel> make_cuda_router_losses_backward(const KernelRequest& request) {
  const RouterSizes s(request);
  if (!is_wide(s.dtype)) return nullptr;
  return make_kernel([s](const Bindings& b, Stream& stream) {
    if (s.tokens == 0) return;
    with_wide(s.dtype, [&]<typename T>(T) {
      DLTRAIN_LAUNCH(router_losses_backward_kernel<T>, stride_grid(s.tokens, kExpertBlock),
                     kExpertBlock, stream.native(), s, b.input<T>(0), b.input<int32_t>(1),
                     b.input<double>(2), b.output<T>(0));
    });
  });
}

}  // namespace dltrain
