// The ops of mixtures of experts but the products (lib/ops/experts.cpp). Sums are taken in a fixed
// order, independent of the number of threads.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"
#include "ops/rules.h"
#include "shared/expert_choice.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

constexpr int64_t kTokensAtOnce = 64;  // least tokens of a thread, and those of a partial sum

int64_t tokens_of(const Shape& shape) {
  return shape.elements(0, shape.rank() - 1);
}
int64_t grain_of(int64_t width) {
  return std::max<int64_t>(1, 8192 / std::max<int64_t>(1, width));
}

// Writes the softmax of a row of logits; returns log Σ exp.
float softmax_row(const float* x, int64_t count, float* p) {
  const float greatest = *std::max_element(x, x + count);
  float sum = 0;
  for (int64_t e = 0; e < count; ++e) sum += p[e] = std::exp(x[e] - greatest);
  for (int64_t e = 0; e < count; ++e) p[e] /= sum;
  return greatest + std::log(sum);
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
  const int64_t experts = request.inputs[0].shape[-1], k = request.outputs[0].shape[-1];
  const int64_t tokens = tokens_of(request.inputs[0].shape);
  const bool normalize = request.attributes.boolean("normalize");
  const auto run = [=](const Bindings& b, Stream&) {
    auto* chosen = b.output<int32_t>(1);
    parallel_each(tokens, kTokensAtOnce, [&](int64_t t) {
      const float* p = b.input<float>(0) + t * experts;
      float* weights = b.output<float>(0) + t * k;
      choose_experts(p, experts, k, chosen + t * k);
      float sum = 0;
      for (int64_t j = 0; j < k; ++j) sum += weights[j] = p[chosen[t * k + j]];
      for (int64_t j = 0; normalize && j < k; ++j) weights[j] /= sum;
    });
    sort_pairs(chosen, tokens * k, experts, b.output<int32_t>(2), b.output<int32_t>(3),
               b.output<int32_t>(4), static_cast<int32_t*>(b.workspace));
  };
  return make_kernel(run, static_cast<size_t>(experts) * sizeof(int32_t));
}

std::unique_ptr<Kernel> make_top_k_routing_backward(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  const int64_t experts = request.inputs[0].shape[-1], k = request.inputs[1].shape[-1];
  const int64_t tokens = tokens_of(request.inputs[0].shape);
  const bool normalize = request.attributes.boolean("normalize");
  return make_kernel([=](const Bindings& b, Stream&) {
    parallel_each(tokens, kTokensAtOnce, [&](int64_t t) {
      const float *p = b.input<float>(0) + t * experts, *dw = b.input<float>(2) + t * k;
      const int32_t* chosen = b.input<int32_t>(1) + t * k;
      float* dp = b.output<float>(0) + t * experts;
      std::fill_n(dp, experts, 0.0f);
      float sum = 0, product = 0;
      for (int64_t j = 0; j < k; ++j) {
        sum += p[chosen[j]];
        product += dw[j] * p[chosen[j]];
      }
      for (int64_t j = 0; j < k; ++j) {
        dp[chosen[j]] += normalize ? (dw[j] - product / sum) / sum : dw[j];
      }
    });
  });
}

std::unique_ptr<Kernel> make_dispatch_tokens(const KernelRequest& request) {
  const bool weighted = request.inputs.size() > 3 && !is_absent(request.inputs[3]);
  if (weighted && !computes_in_f32(request)) return nullptr;
  const int64_t rows = request.outputs[0].shape[0], width = request.outputs[0].shape[1];
  const int64_t k = request.inputs[2].shape[-1];
  const size_t bytes = static_cast<size_t>(width) * dtype_size(request.inputs[0].dtype);
  return make_kernel([=](const Bindings& b, Stream&) {
    const auto* sources = b.input<int32_t>(1);
    parallel_each(rows, grain_of(width), [&](int64_t r) {
      const int64_t token = sources[r] / k;
      if (!weighted) {
        std::memcpy(b.output<std::byte>(0) + static_cast<size_t>(r) * bytes,
                    b.input<std::byte>(0) + static_cast<size_t>(token) * bytes, bytes);
        return;
      }
      const float weight = b.input<float>(3)[sources[r]], *x = b.input<float>(0) + token * width;
      float* y = b.output<float>(0) + r * width;
      for (int64_t d = 0; d < width; ++d) y[d] = weight * x[d];
    });
  });
}

std::unique_ptr<Kernel> make_combine_experts(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  const int64_t width = request.inputs[0].shape[1], k = request.inputs[1].shape[-1];
  const int64_t tokens = tokens_of(request.inputs[1].shape);
  return make_kernel([=](const Bindings& b, Stream&) {
    const auto* weights = b.input<float>(3);
    parallel_each(tokens, grain_of(width * k), [&](int64_t t) {
      float* out = b.output<float>(0) + t * width;
      for (int64_t j = 0; j < k; ++j) {
        const int64_t pair = t * k + j;
        const float* y = b.input<float>(0) + b.input<int32_t>(1)[pair] * width;
        const float weight = weights != nullptr ? weights[pair] : 1.0f;
        for (int64_t d = 0; d < width; ++d) out[d] = weight * y[d] + (j > 0 ? out[d] : 0.0f);
      }
    });
  });
}

std::unique_ptr<Kernel> make_combine_experts_backward_weights(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  const int64_t width = request.inputs[1].shape[1], k = request.inputs[2].shape[-1];
  const int64_t pairs = request.inputs[2].shape.elements();
  return make_kernel([=](const Bindings& b, Stream&) {
    parallel_each(pairs, grain_of(width), [&](int64_t pair) {
      constexpr int64_t kSums = 16;  // which the compiler keeps in vectors
      const float* dout = b.input<float>(0) + pair / k * width;
      const float* y = b.input<float>(1) + b.input<int32_t>(2)[pair] * width;
      float sums[kSums] = {};
      int64_t d = 0;
      for (; d + kSums <= width; d += kSums) {
        for (int64_t i = 0; i < kSums; ++i) sums[i] += dout[d + i] * y[d + i];
      }
      for (; d < width; ++d) sums[d % kSums] += dout[d] * y[d];
      float sum = 0;
      for (float part : sums) sum += part;
      b.output<float>(0)[pair] = sum;
    });
  });
}

// Each partial sum has those of the probabilities of each expert, then of z-loss and entropy.
std::unique_ptr<Kernel> make_router_losses(const KernelRequest& request) {
  if (request.inputs[0].dtype != DType::f32) return nullptr;
  const int64_t experts = request.inputs[0].shape[-1];
  const int64_t tokens = tokens_of(request.inputs[0].shape);
  const int64_t parts = ceil_div(tokens, kTokensAtOnce), width = experts + 2;
  const auto run = [=](const Bindings& b, Stream&) {
    auto* partial = static_cast<double*>(b.workspace);
    auto* rows = reinterpret_cast<float*>(partial + parts * width);  // one of each part
    parallel_each(parts, 1, [&](int64_t part) {
      double* sums = partial + part * width;
      float* p = rows + part * experts;
      std::fill_n(sums, width, 0.0);
      const int64_t end = std::min(tokens, (part + 1) * kTokensAtOnce);
      for (int64_t t = part * kTokensAtOnce; t < end; ++t) {
        const float* x = b.input<float>(0) + t * experts;
        const float log_sum_exp = softmax_row(x, experts, p);
        sums[experts] += double{log_sum_exp} * log_sum_exp;
        for (int64_t e = 0; e < experts; ++e) {
          sums[e] += p[e];
          if (p[e] > 0) sums[experts + 1] -= double{p[e]} * (x[e] - log_sum_exp);
        }
      }
    });
    for (int64_t part = 1; part < parts; ++part) {
      for (int64_t i = 0; i < width; ++i) partial[i] += partial[part * width + i];
    }
    const auto* offsets = b.input<int32_t>(1);
    const auto count = static_cast<double>(tokens);
    double balance = 0;
    auto* sums = b.output<double>(1);
    for (int64_t e = 0; e < experts; ++e) {
      sums[e] = offsets[e + 1] - offsets[e];
      balance += static_cast<double>(experts) * sums[e] / count * partial[e];
    }
    sums[experts] = balance;
    sums[experts + 1] = partial[experts];
    sums[experts + 2] = partial[experts + 1];
    b.output<double>(0)[0] = balance / count;
    b.output<double>(0)[1] = partial[experts] / count;
  };
  return make_kernel(run,
                     static_cast<size_t>(parts) * (static_cast<size_t>(width) * sizeof(double) +
                                                   static_cast<size_t>(experts) * sizeof(float)));
}

std::unique_ptr<Kernel> make_router_losses_backward(const KernelRequest& request) {
  if (request.inputs[0].dtype != DType::f32) return nullptr;
  const int64_t experts = request.inputs[0].shape[-1];
  const int64_t tokens = tokens_of(request.inputs[0].shape);
  return make_kernel([=](const Bindings& b, Stream&) {
    const auto* offsets = b.input<int32_t>(1);
    const auto count = static_cast<double>(tokens);
    const double balance = b.input<double>(2)[0] * static_cast<double>(experts) / (count * count);
    const double z = 2 * b.input<double>(2)[1] / count;
    parallel_each(tokens, kTokensAtOnce, [&](int64_t t) {
      float* dx = b.output<float>(0) + t * experts;  // first the probabilities
      const double log_sum_exp = softmax_row(b.input<float>(0) + t * experts, experts, dx);
      double mean = 0;
      for (int64_t e = 0; e < experts; ++e) {
        mean += balance * (offsets[e + 1] - offsets[e]) * dx[e];
      }
      for (int64_t e = 0; e < experts; ++e) {
        const double slope = balance * (offsets[e + 1] - offsets[e]) - mean + z * log_sum_exp;
        dx[e] = static_cast<float>(dx[e] * slope);
      }
    });
  });
}

}  // namespace dltrain
