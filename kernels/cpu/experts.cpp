// The ops of mixtures of experts but the products (lib/ops/experts.cpp). Sums are taken in a fixed
// order, independent of the number of threads.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"
#include "shared/expert_rules.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

constexpr int64_t kTokensAtOnce = 64;  // least tokens of a thread, and those of a partial sum

int64_t grain_of(int64_t width) {
  return std::max<int64_t>(1, 8192 / std::max<int64_t>(1, width));
}

// A counting sort of the pairs by expert; `next` has room for each expert.
void sort_pairs(const int32_t* chosen, int64_t pairs, int64_t experts, int32_t* rows,
                int32_t* sources, int32_t* offsets, int32_t* next) {
  std::fill_n(offsets, experts + 1, 0);
  for (int64_t i = 0; i < pairs; ++i) ++offsets[chosen[i] + 1];
  for (int64_t e = 0; e < experts; ++e) offsets[e + 1] += offsets[e];
  std::copy_n(offsets, experts, next);
  for (int64_t i = 0; i < pairs; ++i) {
    rows[i] = next[chosen[i]]++;
    sources[rows[i]] = static_cast<int32_t>(i);
  }
}

}  // namespace

std::unique_ptr<Kernel> make_top_k_routing(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  const auto run = [s = RouterSizes(request)](const Bindings& b, Stream&) {
    auto* chosen = b.output<int32_t>(1);
    parallel_each(s.tokens, kTokensAtOnce, [&](int64_t t) {
      route_token(b.input<float>(0) + t * s.experts, s.experts, s.k, s.normalize,
                  b.output<float>(0) + t * s.k, chosen + t * s.k);
    });
    sort_pairs(chosen, s.tokens * s.k, s.experts, b.output<int32_t>(2), b.output<int32_t>(3),
               b.output<int32_t>(4), static_cast<int32_t*>(b.workspace));
  };
  return make_kernel(run, static_cast<size_t>(RouterSizes(request).experts) * sizeof(int32_t));
}

std::unique_ptr<Kernel> make_top_k_routing_backward(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  return make_kernel([s = RouterSizes(request)](const Bindings& b, Stream&) {
    parallel_each(s.tokens, kTokensAtOnce, [&](int64_t t) {
      route_token_backward(b.input<float>(0) + t * s.experts, b.input<int32_t>(1) + t * s.k,
                           b.input<float>(2) + t * s.k, s.experts, s.k, s.normalize,
                           b.output<float>(0) + t * s.experts);
    });
  });
}

std::unique_ptr<Kernel> make_dispatch_tokens(const KernelRequest& request) {
  const MoveSizes s(request);
  if (s.weighted && !computes_in_f32(request)) return nullptr;
  return make_kernel([s, bytes = static_cast<size_t>(s.width) * dtype_size(s.dtype)](
                         const Bindings& b, Stream&) {
    const auto* sources = b.input<int32_t>(1);
    parallel_each(s.rows, grain_of(s.width), [&](int64_t r) {
      auto* to = b.output<std::byte>(0) + static_cast<size_t>(r) * bytes;
      if (sources[r] < 0) {
        std::memset(to, 0, bytes);
        return;
      }
      const int64_t token = sources[r] / s.k;
      if (!s.weighted) {
        std::memcpy(to, b.input<std::byte>(0) + static_cast<size_t>(token) * bytes, bytes);
        return;
      }
      const float weight = b.input<float>(3)[sources[r]], *x = b.input<float>(0) + token * s.width;
      float* y = b.output<float>(0) + r * s.width;
      for (int64_t d = 0; d < s.width; ++d) y[d] = weight * x[d];
    });
  });
}

std::unique_ptr<Kernel> make_combine_experts(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  return make_kernel([s = MoveSizes(request)](const Bindings& b, Stream&) {
    parallel_each(s.pairs / s.k, grain_of(s.width * s.k), [&](int64_t t) {
      float* out = b.output<float>(0) + t * s.width;
      for (int64_t j = 0; j < s.k; ++j) {
        const int64_t pair = t * s.k + j;
        const int32_t row = b.input<int32_t>(1)[pair];
        if (row < 0) {
          for (int64_t d = 0; d < s.width; ++d) {
            out[d] = missing_row<float>(row) + (j > 0 ? out[d] : 0.0f);
          }
          continue;
        }
        const float* y = b.input<float>(0) + row * s.width;
        const float weight = s.weighted ? b.input<float>(3)[pair] : 1.0f;
        for (int64_t d = 0; d < s.width; ++d) out[d] = weight * y[d] + (j > 0 ? out[d] : 0.0f);
      }
    });
  });
}

std::unique_ptr<Kernel> make_combine_experts_backward_weights(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  return make_kernel([s = MoveSizes(request)](const Bindings& b, Stream&) {
    parallel_each(s.pairs, grain_of(s.width), [&](int64_t pair) {
      constexpr int64_t kSums = 16;  // which the compiler keeps in vectors
      const int32_t row = b.input<int32_t>(2)[pair];
      if (row < 0) {
        b.output<float>(0)[pair] = missing_row<float>(row);
        return;
      }
      const float* dout = b.input<float>(0) + pair / s.k * s.width;
      const float* y = b.input<float>(1) + row * s.width;
      float sums[kSums] = {};
      int64_t d = 0;
      for (; d + kSums <= s.width; d += kSums) {
        for (int64_t i = 0; i < kSums; ++i) sums[i] += dout[d + i] * y[d + i];
      }
      for (; d < s.width; ++d) sums[d % kSums] += dout[d] * y[d];
      float sum = 0;
      for (float part : sums) sum += part;
      b.output<float>(0)[pair] = sum;
    });
  });
}

std::unique_ptr<Kernel> make_place_rows(const KernelRequest& request) {
  const int64_t bins = request.outputs[4].shape[0] - 2;
  return make_kernel([p = RowPlaces(request), bins](const Bindings& b, Stream&) {
    const RoutedRows routed(b);
    auto *places = b.output<int32_t>(0), *sources = b.output<int32_t>(1);
    auto* counts = b.output<int32_t>(2);
    std::fill_n(sources, p.ranks * p.buffer, kNoRow);
    for (int64_t e = 0; e < p.ranks * p.local; ++e) counts[e] = p.kept(routed, e);
    parallel_each(p.pairs, kTokensAtOnce, [&](int64_t i) {
      places[i] = p.place(routed.offsets, counts, routed.rows[i]);
      if (places[i] >= 0) sources[places[i]] = static_cast<int32_t>(i);
    });
    p.finish_place(counts, b.output<int32_t>(3), b.output<double>(4), bins);
  });
}

std::unique_ptr<Kernel> make_sort_received(const KernelRequest& request) {
  return make_kernel([p = RowPlaces(request)](const Bindings& b, Stream&) {
    const auto* counts = b.input<int32_t>(0);
    auto *sources = b.output<int32_t>(0), *rows = b.output<int32_t>(1);
    auto* offsets = b.output<int32_t>(2);
    p.finish_sort(counts, offsets, b.output<int32_t>(3));
    std::fill_n(sources, p.ranks * p.buffer, kNoRow);
    parallel_each(p.ranks * p.buffer, kTokensAtOnce, [&](int64_t i) {
      rows[i] = p.sorted(counts, offsets, i / p.buffer, i % p.buffer);
      if (rows[i] >= 0) sources[rows[i]] = static_cast<int32_t>(i);
    });
  });
}

// Each partial sum has those of the probabilities of each expert, then of z-loss and entropy.
std::unique_ptr<Kernel> make_router_losses(const KernelRequest& request) {
  const RouterSizes s(request);
  if (s.dtype != DType::f32) return nullptr;
  const int64_t parts = ceil_div(s.tokens, kTokensAtOnce), width = s.experts + 2;
  const auto run = [=](const Bindings& b, Stream&) {
    auto* partial = static_cast<double*>(b.workspace);
    parallel_each(parts, 1, [&](int64_t part) {
      double* sums = partial + part * width;
      std::fill_n(sums, width, 0.0);
      const int64_t end = std::min(s.tokens, (part + 1) * kTokensAtOnce);
      for (int64_t t = part * kTokensAtOnce; t < end; ++t) {
        const float *x = b.input<float>(0) + t * s.experts, offset = log_sum_exp(x, s.experts);
        sums[s.experts] += double{offset} * offset;
        for (int64_t e = 0; e < s.experts; ++e) {
          const double p = std::exp(x[e] - offset);
          sums[e] += p;
          if (p > 0) sums[s.experts + 1] -= p * (x[e] - offset);
        }
      }
    });
    for (int64_t i = width; i < parts * width; ++i) partial[i % width] += partial[i];
    const auto* offsets = b.input<int32_t>(1);
    auto *losses = b.output<double>(0), *sums = b.output<double>(1);
    const auto count = static_cast<double>(s.tokens);
    double balance = 0;
    for (int64_t e = 0; e < s.experts; ++e) {
      sums[e] = offsets[e + 1] - offsets[e];
      balance += static_cast<double>(s.experts) * sums[e] / count * partial[e];
    }
    sums[s.experts] = balance;
    std::copy_n(partial + s.experts, 2, sums + s.experts + 1);
    losses[0] = balance / count;
    losses[1] = partial[s.experts] / count;
  };
  return make_kernel(run, static_cast<size_t>(parts * width) * sizeof(double));
}

std::unique_ptr<Kernel> make_router_losses_backward(const KernelRequest& request) {
  const RouterSizes s(request);
  if (s.dtype != DType::f32) return nullptr;
  return make_kernel([s](const Bindings& b, Stream&) {
    parallel_each(s.tokens, kTokensAtOnce, [&](int64_t t) {
      router_losses_backward_token(b.input<float>(0) + t * s.experts, b.input<int32_t>(1),
                                   b.input<double>(2), s.tokens, s.experts,
                                   b.output<float>(0) + t * s.experts);
    });
  });
}

}  // namespace dltrain
