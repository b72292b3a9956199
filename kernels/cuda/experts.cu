// The ops of mixtures of experts but the products (lib/ops/experts.cpp). Pairs are sorted by one
// block for each expert, which counts and places its pairs in order, without atomic operations.
// Sums are taken in a fixed order.
#include "cuda/device_code.cuh"
#include "cuda/makers.h"
#include "ops/rules.h"
#include "shared/expert_choice.h"
#include "shared/make_kernel.h"
#include "shared/workspace_parts.h"

namespace dltrain {
namespace {

constexpr int kExpertBlock = 256;

struct RoutingCall {
  DType dtype;
  int64_t tokens, experts, k;
  bool normalize;
};

template <typename T>
__global__ void choose_kernel(RoutingCall c, const T* probabilities, T* weights, int32_t* chosen) {
  for (int64_t t = thread_index(); t < c.tokens; t += thread_count()) {
    const T* p = probabilities + t * c.experts;
    choose_experts(p, c.experts, c.k, chosen + t * c.k);
    T sum = 0;
    for (int64_t j = 0; j < c.k; ++j) sum += p[chosen[t * c.k + j]];
    for (int64_t j = 0; j < c.k; ++j) {
      const T weight = p[chosen[t * c.k + j]];
      weights[t * c.k + j] = c.normalize ? weight / sum : weight;
    }
  }
}

// One block for each expert.
__global__ void count_pairs_kernel(const int32_t* chosen, int64_t pairs, int32_t* counts) {
  int32_t own = 0;
  for (int64_t i = threadIdx.x; i < pairs; i += kExpertBlock) {
    own += chosen[i] == static_cast<int32_t>(blockIdx.x) ? 1 : 0;
  }
  own = block_sum(own);
  if (threadIdx.x == 0) counts[blockIdx.x] = own;
}

__global__ void offsets_kernel(const int32_t* counts, int32_t* offsets, int64_t experts) {
  offsets[0] = 0;
  for (int64_t e = 0; e < experts; ++e) offsets[e + 1] = offsets[e] + counts[e];
}

// One block for each expert; each thread has a run of pairs.
__global__ void place_pairs_kernel(const int32_t* chosen, int64_t pairs, const int32_t* offsets,
                                   int32_t* rows, int32_t* sources) {
  __shared__ int32_t before[kExpertBlock];
  const auto expert = static_cast<int32_t>(blockIdx.x);
  const int64_t run = divide_up(pairs, kExpertBlock), begin = threadIdx.x * run;
  const int64_t end = begin + run < pairs ? begin + run : pairs;
  int32_t own = 0;
  for (int64_t i = begin; i < end; ++i) own += chosen[i] == expert ? 1 : 0;
  before[threadIdx.x] = own;
  __syncthreads();
  if (threadIdx.x == 0) {
    int32_t row = offsets[expert];
    for (int i = 0; i < kExpertBlock; ++i) {
      const int32_t count = before[i];
      before[i] = row;
      row += count;
    }
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
__global__ void routing_backward_kernel(RoutingCall c, const T* probabilities,
                                        const int32_t* chosen, const T* dweights,
                                        T* dprobabilities) {
  for (int64_t t = thread_index(); t < c.tokens; t += thread_count()) {
    const T *p = probabilities + t * c.experts, *dw = dweights + t * c.k;
    const int32_t* of = chosen + t * c.k;
    T* dp = dprobabilities + t * c.experts;
    for (int64_t e = 0; e < c.experts; ++e) dp[e] = 0;
    T sum = 0, product = 0;
    for (int64_t j = 0; j < c.k; ++j) {
      sum += p[of[j]];
      product += dw[j] * p[of[j]];
    }
    for (int64_t j = 0; j < c.k; ++j) {
      dp[of[j]] += c.normalize ? (dw[j] - product / sum) / sum : dw[j];
    }
  }
}

template <typename T>
__global__ void dispatch_kernel(const T* x, const int32_t* sources, const MathOf<T>* weights, T* y,
                                int64_t count, int64_t width, int64_t k) {
  using M = MathOf<T>;
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    const int32_t pair = sources[i / width];
    const M weight = weights == nullptr ? M(1) : weights[pair];
    y[i] = static_cast<T>(weight * static_cast<M>(x[pair / k * width + i % width]));
  }
}

template <typename T>
__global__ void combine_kernel(const T* y, const int32_t* rows, const MathOf<T>* weights, T* out,
                               int64_t count, int64_t width, int64_t k) {
  using M = MathOf<T>;
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    M sum = 0;
    for (int64_t j = 0; j < k; ++j) {
      const int64_t pair = i / width * k + j;
      const M weight = weights == nullptr ? M(1) : weights[pair];
      sum += weight * static_cast<M>(y[rows[pair] * width + i % width]);
    }
    out[i] = static_cast<T>(sum);
  }
}

// One warp for each pair.
template <typename T>
__global__ void combine_backward_weights_kernel(const T* dout, const T* y, const int32_t* rows,
                                                MathOf<T>* dweights, int64_t pairs, int64_t width,
                                                int64_t k) {
  using M = MathOf<T>;
  const int64_t pair = thread_index() / kWarp;
  if (pair >= pairs) return;  // uniform over a warp
  const T *a = dout + pair / k * width, *b = y + rows[pair] * width;
  M sum = 0;
  for (int64_t d = threadIdx.x % kWarp; d < width; d += kWarp) {
    sum += static_cast<M>(a[d]) * static_cast<M>(b[d]);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % kWarp == 0) dweights[pair] = sum;
}

template <typename T>
__device__ T log_sum_exp(const T* x, int64_t count) {
  T most = x[0], sum = 0;
  for (int64_t e = 1; e < count; ++e) most = x[e] > most ? x[e] : most;
  for (int64_t e = 0; e < count; ++e) sum += std::exp(x[e] - most);
  return most + std::log(sum);
}

// A thread for each token. A block writes its sums of the probabilities of each expert, then of
// z-loss and entropy.
template <typename T>
__global__ void router_sums_kernel(const T* logits, double* partial, int64_t tokens,
                                   int64_t experts) {
  const int64_t t = thread_index();
  const bool inside = t < tokens;
  const T* x = logits + (inside ? t : 0) * experts;
  const T offset = log_sum_exp(x, experts);
  double* out = partial + int64_t{blockIdx.x} * (experts + 2);
  double entropy = 0;
  for (int64_t e = 0; e < experts; ++e) {
    const double p = inside ? static_cast<double>(std::exp(x[e] - offset)) : 0.0;
    if (p > 0) entropy -= p * static_cast<double>(x[e] - offset);
    const double sum = block_sum(p);
    if (threadIdx.x == 0) out[e] = sum;
  }
  const double z = block_sum(inside ? static_cast<double>(offset) * offset : 0.0);
  entropy = block_sum(entropy);
  if (threadIdx.x == 0) {
    out[experts] = z;
    out[experts + 1] = entropy;
  }
}

// One block, which adds up the sums of all.
__global__ void router_losses_kernel(const double* partial, int64_t parts, const int32_t* offsets,
                                     double* losses, double* sums, int64_t tokens,
                                     int64_t experts) {
  const auto count = static_cast<double>(tokens);
  double balance = 0;
  for (int64_t i = threadIdx.x; i < experts + 2; i += kExpertBlock) {
    double sum = 0;
    for (int64_t part = 0; part < parts; ++part) sum += partial[part * (experts + 2) + i];
    if (i < experts) {
      sums[i] = offsets[i + 1] - offsets[i];
      balance += static_cast<double>(experts) * sums[i] / count * sum;
    } else {
      sums[i + 1] = sum;
      if (i == experts) losses[1] = sum / count;
    }
  }
  balance = block_sum(balance);
  if (threadIdx.x == 0) {
    sums[experts] = balance;
    losses[0] = balance / count;
  }
}

template <typename T>
__global__ void router_losses_backward_kernel(const T* logits, const int32_t* offsets,
                                              const double* dlosses, T* dlogits, int64_t tokens,
                                              int64_t experts) {
  const auto count = static_cast<double>(tokens);
  const double balance = dlosses[0] * static_cast<double>(experts) / (count * count);
  for (int64_t t = thread_index(); t < tokens; t += thread_count()) {
    const T* x = logits + t * experts;
    const T offset = log_sum_exp(x, experts);
    double mean = 0;
    for (int64_t e = 0; e < experts; ++e) {
      mean +=
          balance * (offsets[e + 1] - offsets[e]) * static_cast<double>(std::exp(x[e] - offset));
    }
    const double z = 2 * dlosses[1] * static_cast<double>(offset) / count;
    for (int64_t e = 0; e < experts; ++e) {
      const double slope = balance * (offsets[e + 1] - offsets[e]) - mean + z;
      dlogits[t * experts + e] =
          static_cast<T>(static_cast<double>(std::exp(x[e] - offset)) * slope);
    }
  }
}

bool is_wide(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64;
}
bool has_weights(const KernelRequest& request) {
  return request.inputs.size() > 3 && !is_absent(request.inputs[3]);
}

}  // namespace

std::unique_ptr<Kernel> make_cuda_top_k_routing(const KernelRequest& request) {
  const Shape& p = request.inputs[0].shape;
  const RoutingCall c{.dtype = request.inputs[0].dtype,
                      .tokens = p.elements(0, p.rank() - 1),
                      .experts = p[-1],
                      .k = request.outputs[0].shape[-1],
                      .normalize = request.attributes.boolean("normalize")};
  if (!is_wide(c.dtype)) return nullptr;
  const auto run = [c](const Bindings& b, Stream& s) {
    const CudaStream stream = s.native();
    if (c.tokens == 0) return;
    auto *chosen = b.output<int32_t>(1), *offsets = b.output<int32_t>(4);
    auto* counts = static_cast<int32_t*>(b.workspace);
    with_wide(c.dtype, [&]<typename T>(T) {
      DLTRAIN_LAUNCH(choose_kernel<T>, stride_grid(c.tokens, kExpertBlock), kExpertBlock, stream, c,
                     b.input<T>(0), b.output<T>(0), chosen);
    });
    const auto blocks = static_cast<unsigned>(c.experts);
    DLTRAIN_LAUNCH(count_pairs_kernel, blocks, kExpertBlock, stream, chosen, c.tokens * c.k,
                   counts);
    DLTRAIN_LAUNCH(offsets_kernel, 1u, 1u, stream, counts, offsets, c.experts);
    DLTRAIN_LAUNCH(place_pairs_kernel, blocks, kExpertBlock, stream, chosen, c.tokens * c.k,
                   offsets, b.output<int32_t>(2), b.output<int32_t>(3));
  };
  return make_kernel(run, static_cast<size_t>(c.experts) * sizeof(int32_t));
}

std::unique_ptr<Kernel> make_cuda_top_k_routing_backward(const KernelRequest& request) {
  const Shape& p = request.inputs[0].shape;
  const RoutingCall c{.dtype = request.inputs[0].dtype,
                      .tokens = p.elements(0, p.rank() - 1),
                      .experts = p[-1],
                      .k = request.inputs[1].shape[-1],
                      .normalize = request.attributes.boolean("normalize")};
  if (!is_wide(c.dtype)) return nullptr;
  return make_kernel([c](const Bindings& b, Stream& stream) {
    if (c.tokens == 0) return;
    with_wide(c.dtype, [&]<typename T>(T) {
      DLTRAIN_LAUNCH(routing_backward_kernel<T>, stride_grid(c.tokens, kExpertBlock), kExpertBlock,
                     stream.native(), c, b.input<T>(0), b.input<int32_t>(1), b.input<T>(2),
                     b.output<T>(0));
    });
  });
}

std::unique_ptr<Kernel> make_cuda_dispatch_tokens(const KernelRequest& request) {
  const DType dtype = request.inputs[0].dtype;
  const int64_t count = request.outputs[0].shape.elements(), width = request.outputs[0].shape[1];
  const int64_t k = request.inputs[2].shape[-1];
  return make_kernel([=, weighted = has_weights(request)](const Bindings& b, Stream& stream) {
    if (count == 0) return;
    with_floating(dtype, [&]<typename T>(T) {
      const MathOf<T>* weights = weighted ? b.input<MathOf<T>>(3) : nullptr;
      DLTRAIN_LAUNCH(dispatch_kernel<T>, stride_grid(count, kExpertBlock), kExpertBlock,
                     stream.native(), b.input<T>(0), b.input<int32_t>(1), weights, b.output<T>(0),
                     count, width, k);
    });
  });
}

std::unique_ptr<Kernel> make_cuda_combine_experts(const KernelRequest& request) {
  const DType dtype = request.inputs[0].dtype;
  const int64_t count = request.outputs[0].shape.elements(), width = request.outputs[0].shape[-1];
  const int64_t k = request.inputs[1].shape[-1];
  return make_kernel([=, weighted = has_weights(request)](const Bindings& b, Stream& stream) {
    if (count == 0) return;
    with_floating(dtype, [&]<typename T>(T) {
      const MathOf<T>* weights = weighted ? b.input<MathOf<T>>(3) : nullptr;
      DLTRAIN_LAUNCH(combine_kernel<T>, stride_grid(count, kExpertBlock), kExpertBlock,
                     stream.native(), b.input<T>(0), b.input<int32_t>(1), weights, b.output<T>(0),
                     count, width, k);
    });
  });
}

std::unique_ptr<Kernel> make_cuda_combine_experts_backward_weights(const KernelRequest& request) {
  const DType dtype = request.inputs[0].dtype;
  const int64_t pairs = request.outputs[0].shape.elements(), width = request.inputs[1].shape[1];
  const int64_t k = request.outputs[0].shape[-1];
  return make_kernel([=](const Bindings& b, Stream& stream) {
    if (pairs == 0) return;
    const auto grid = static_cast<unsigned>(divide_up(pairs, kExpertBlock / kWarp));
    with_floating(dtype, [&]<typename T>(T) {
      DLTRAIN_LAUNCH(combine_backward_weights_kernel<T>, grid, kExpertBlock, stream.native(),
                     b.input<T>(0), b.input<T>(1), b.input<int32_t>(2), b.output<MathOf<T>>(0),
                     pairs, width, k);
    });
  });
}

std::unique_ptr<Kernel> make_cuda_router_losses(const KernelRequest& request) {
  const DType dtype = request.inputs[0].dtype;
  if (!is_wide(dtype)) return nullptr;
  const int64_t experts = request.inputs[0].shape[-1];
  const int64_t tokens = request.inputs[0].shape.elements() / experts;
  const int64_t parts = divide_up(tokens, kExpertBlock);
  WorkspaceParts workspace;
  workspace.add(parts * (experts + 2), DType::f64);
  const auto run = [=](const Bindings& b, Stream& stream) {
    if (tokens == 0) return;
    auto* partial = static_cast<double*>(b.workspace);
    with_wide(dtype, [&]<typename T>(T) {
      DLTRAIN_LAUNCH(router_sums_kernel<T>, static_cast<unsigned>(parts), kExpertBlock,
                     stream.native(), b.input<T>(0), partial, tokens, experts);
    });
    DLTRAIN_LAUNCH(router_losses_kernel, 1u, kExpertBlock, stream.native(), partial, parts,
                   b.input<int32_t>(1), b.output<double>(0), b.output<double>(1), tokens, experts);
  };
  return make_kernel(run, workspace.total());
}

std::unique_ptr<Kernel> make_cuda_router_losses_backward(const KernelRequest& request) {
  const DType dtype = request.inputs[0].dtype;
  if (!is_wide(dtype)) return nullptr;
  const int64_t experts = request.inputs[0].shape[-1];
  const int64_t tokens = request.inputs[0].shape.elements() / experts;
  return make_kernel([=](const Bindings& b, Stream& stream) {
    if (tokens == 0) return;
    with_wide(dtype, [&]<typename T>(T) {
      DLTRAIN_LAUNCH(router_losses_backward_kernel<T>, stride_grid(tokens, kExpertBlock),
                     kExpertBlock, stream.native(), b.input<T>(0), b.input<int32_t>(1),
                     b.input<double>(2), b.output<T>(0), tokens, experts);
    });
  });
}

}  // namespace dltrain
