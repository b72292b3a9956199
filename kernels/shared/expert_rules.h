// The arithmetic of one token in mixtures of experts, and the sizes of the ops, shared by the CPU
// and CUDA engines (lib/ops/experts.cpp).
#pragma once

#include <cmath>
#include <cstdint>

#include "base/host_device.h"
#include "ops/expert_places.h"
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
    const TensorSpec& of_pairs = request.inputs[request.op == "combine_experts" ? 1 : 2];
    k = of_pairs.shape[-1];
    pairs = of_pairs.shape.elements();
    rows = request.op == "dispatch_tokens" ? request.outputs[0].shape[0] : 0;
  }
  DType dtype;
  int64_t width, k = 0, pairs = 0, rows = 0;
  bool weighted;
};

// Returns the value that is read in place of a missing row: NaN where its buffer was full, else 0.
template <typename T>
DLTRAIN_HD T missing_row(int32_t row) {
  return row == kOverflowRow ? static_cast<T>(NAN) : static_cast<T>(0);
}

// The inputs of place_rows; the last three are null if the tokens are those of the micro-batch.
struct RoutedRows {
  explicit RoutedRows(const Bindings& b)
      : rows(b.input<int32_t>(0)),
        offsets(b.input<int32_t>(1)),
        sources(b.input<int32_t>(2)),
        whole_rows(b.input<int32_t>(3)),
        whole_offsets(b.input<int32_t>(4)) {}
  const int32_t *rows, *offsets, *sources, *whole_rows, *whole_offsets;
};

// The ops of lib/ops/expert_places.cpp.
struct RowPlaces {
  explicit RowPlaces(const KernelRequest& request)
      : buffer(request.attributes.integer("buffer")),
        capacity(request.attributes.integer("capacity")) {
    const Shape& counts =
        request.op == "place_rows" ? request.outputs[2].shape : request.inputs[0].shape;
    ranks = counts[0];
    local = counts[1];
    if (request.op == "place_rows") pairs = request.inputs[0].shape.elements();
  }

  // Returns the number of rows of an expert that are not dropped, the first ones.
  DLTRAIN_HD int32_t kept(const RoutedRows& routed, int64_t expert) const {
    const int32_t first = routed.offsets[expert], count = routed.offsets[expert + 1] - first;
    if (capacity == 0) return count;
    if (routed.whole_rows == nullptr) {
      return count < capacity ? count : static_cast<int32_t>(capacity);
    }
    int32_t low = 0, high = count;
    while (low < high) {
      const int32_t middle = low + (high - low) / 2;
      const int32_t pair = routed.sources[first + middle];
      if (routed.whole_rows[pair] - routed.whole_offsets[expert] < capacity) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  // Returns the position at which place_rows puts a row of the sorted order. counts: kept rows.
  DLTRAIN_HD int32_t place(const int32_t* offsets, const int32_t* counts, int32_t row) const {
    int64_t expert = 0;
    while (offsets[expert + 1] <= row) ++expert;
    const int64_t in_expert = row - offsets[expert], owner = expert / local;
    if (in_expert >= counts[expert]) return kNoRow;
    int64_t at = in_expert;
    for (int64_t e = owner * local; e < expert; ++e) at += counts[e];
    return at < buffer ? static_cast<int32_t>(owner * buffer + at) : kOverflowRow;
  }

  // Limits the counts to the buffers.
  DLTRAIN_HD void finish_place(int32_t* counts, int32_t* sent, double* sums, int64_t bins) const {
    int64_t all = 0, most = 0, beyond = 0;
    for (int64_t owner = 0; owner < ranks; ++owner) {
      int64_t rows = 0, placed = 0;
      for (int64_t e = owner * local; e < (owner + 1) * local; ++e) {
        rows += counts[e];
        const int64_t end = rows < buffer ? rows : buffer;
        counts[e] = static_cast<int32_t>(end - placed);
        placed = end;
      }
      sent[owner] = static_cast<int32_t>(placed);
      all += rows;
      most = rows > most ? rows : most;
      beyond += rows - placed;
    }
    sums[0] = static_cast<double>(pairs - all);
    sums[1] = static_cast<double>(beyond);
    const double average = static_cast<double>(pairs) / static_cast<double>(ranks);
    bool found = false;
    for (int64_t bin = 0; bin < bins; ++bin) {
      const bool fits = bin + 1 == bins || static_cast<double>(most) <=
                                               average * std::exp2(static_cast<double>(bin) / 8);
      sums[2 + bin] = fits && !found ? 1 : 0;
      found = found || fits;
    }
  }

  DLTRAIN_HD void finish_sort(const int32_t* counts, int32_t* offsets, int32_t* received) const {
    for (int64_t s = 0; s < ranks; ++s) received[s] = 0;
    offsets[0] = 0;
    for (int64_t e = 0; e < local; ++e) {
      int32_t count = 0;
      for (int64_t s = 0; s < ranks; ++s) {
        count += counts[s * local + e];
        received[s] += counts[s * local + e];
      }
      offsets[e + 1] = offsets[e] + count;
    }
  }

  // The place in the order by expert of row `at` of rank `rank`; −1 if there is no such row.
  DLTRAIN_HD int32_t sorted(const int32_t* counts, const int32_t* offsets, int64_t rank,
                            int64_t at) const {
    for (int64_t e = 0; e < local; ++e) {
      const int32_t count = counts[rank * local + e];
      if (at >= count) {
        at -= count;
        continue;
      }
      int64_t row = offsets[e] + at;
      for (int64_t s = 0; s < rank; ++s) row += counts[s * local + e];
      return static_cast<int32_t>(row);
    }
    return kNoRow;
  }

  int64_t buffer, capacity, ranks = 0, local = 0, pairs = 0;
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
