// The arithmetic of one token in mixtures of experts, and the sizes of the ops, shared by the CPU
// and CUDA engines (lib/ops/experts.cpp).
#pragma once

#include <cmath>
#include <cstdint>

#include "base/host_device.h"
#include "ops/kernel.h"
#include "ops/rules.h"

namespace dltrain {

// Sizes of the ops of routers, whose first input is [..., experts].
struct RouterSizes {
  explicit RouterSizes(const KernelRequest& request)
      : dtype(request.inputs[0].dtype),
        experts(request.inputs[0].shape[-1]),
        tokens(request.inputs[0].shape.elements() / experts),
        normalize(request.attributes.boolean("normalize")) {
    if (request.op == "top_k_routing") k = request.outputs[0].shape[-1];
    if (request.op == "top_k_routing_backward") k = request.inputs[1].shape[-1];
  }
  DType dtype;
  int64_t experts, tokens, k = 0;
  bool normalize;
};

// Sizes of dispatch_tokens, combine_experts and combine_experts_backward_weights.
struct MoveSizes {
  explicit MoveSizes(const KernelRequest& request)
      : dtype(request.inputs[0].dtype),
        width(request.inputs[0].shape[-1]),
        weighted(request.inputs.size() > 3 && !is_absent(request.inputs[3])) {
    const TensorSpec& rows = request.inputs[request.op == "combine_experts" ? 1 : 2];
    k = rows.shape[-1];
    pairs = rows.shape.elements();
  }
  DType dtype;
  int64_t width, k = 0, pairs = 0;
  bool weighted;
};

// Chooses the k experts of the greatest probabilities, the greatest first; of equal ones the first.
// Always chooses k different experts, also with NaN.
template <typename T>
DLTRAIN_HD void route_token(const T* p, int64_t experts, int64_t k, bool normalize, T* weights,
                            int32_t* chosen) {
  T sum = 0;
  for (int64_t j = 0; j < k; ++j) {
    int32_t best = -1;
    for (int32_t e = 0; e < experts; ++e) {
      bool taken = false;
      for (int64_t i = 0; i < j; ++i) taken = taken || chosen[i] == e;
      if (!taken && (best < 0 || p[e] > p[best])) best = e;
    }
    chosen[j] = best;
    sum += weights[j] = p[best];
  }
  for (int64_t j = 0; normalize && j < k; ++j) weights[j] /= sum;
}

// Writes the gradient of the probabilities.
template <typename T>
DLTRAIN_HD void route_token_backward(const T* p, const int32_t* chosen, const T* dweights,
                                     int64_t experts, int64_t k, bool normalize, T* dp) {
  T sum = 0, product = 0;
  for (int64_t e = 0; e < experts; ++e) dp[e] = 0;
  for (int64_t j = 0; j < k; ++j) {
    sum += p[chosen[j]];
    product += dweights[j] * p[chosen[j]];
  }
  for (int64_t j = 0; j < k; ++j) {
    dp[chosen[j]] += normalize ? (dweights[j] - product / sum) / sum : dweights[j];
  }
}

template <typename T>
DLTRAIN_HD T log_sum_exp(const T* x, int64_t count) {
  T most = x[0], sum = 0;
  for (int64_t e = 1; e < count; ++e) most = x[e] > most ? x[e] : most;
  for (int64_t e = 0; e < count; ++e) sum += std::exp(x[e] - most);
  return most + std::log(sum);
}

// Writes the gradient of the logits of one token by the losses of the router.
template <typename T>
DLTRAIN_HD void router_losses_backward_token(const T* x, const int32_t* offsets,
                                             const double* dlosses, int64_t tokens, int64_t experts,
                                             T* dx) {
  const auto count = static_cast<double>(tokens);
  const double balance = dlosses[0] * static_cast<double>(experts) / (count * count);
  const T offset = log_sum_exp(x, experts);
  double mean = 0;  // of the slopes of the balancing loss, under the probabilities
  for (int64_t e = 0; e < experts; ++e) {
    dx[e] = std::exp(x[e] - offset);
    mean += balance * (offsets[e + 1] - offsets[e]) * static_cast<double>(dx[e]);
  }
  const double z = 2 * dlosses[1] * static_cast<double>(offset) / count;
  for (int64_t e = 0; e < experts; ++e) {
    const double slope = balance * (offsets[e + 1] - offsets[e]) - mean + z;
    dx[e] = static_cast<T>(static_cast<double>(dx[e]) * slope);
  }
}

}  // namespace dltrain
