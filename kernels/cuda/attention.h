// Arguments of the kernels of attention and cached_attention (lib/ops/attention.cpp has layouts and
// formulas). dtype: f32, f64, bf16 or f16 of all tensors except the sums, which have its
// accumulation dtype. Heads have up to 256 elements.
#pragma once

#include <cmath>

#include "ops/attention.h"
#include "ops/rules.h"
#include "ops/step_state.h"
#include "tensor/dtype.h"

namespace dltrain {

struct AttentionCall : AttentionSizes {
  static constexpr int64_t kMaxHeadDim = 256;
  DType dtype = DType::f32;
  AttentionPattern pattern = {};
  double scale = 1;
  bool tf32 = false;  // operands of products are rounded (ops/rules.h)
  double dropout = 0;
  uint64_t stream = 0;
  enum class Mask : uint8_t { none, lengths, tokens, documents } mask = Mask::none;

  // Queries [first_query_of, end_query_of) may attend to a key.
  DLTRAIN_HD int64_t first_query_of(int64_t key) const {
    const int64_t at = key - first_query, window = pattern.window;
    const int64_t first = pattern.causal ? at : window > 0 ? at - window + 1 : 0;
    return first > 0 ? first : 0;
  }
  DLTRAIN_HD int64_t end_query_of(int64_t key) const {
    const int64_t end = pattern.window > 0 ? key - first_query + pattern.window : queries;
    return end < queries ? end : queries;
  }
};

// Addresses of the forward's inputs; for a packed tensor q, k and v are equal.
struct AttentionInputs {
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  const int32_t* mask = nullptr;     // with mask
  const StepState* state = nullptr;  // with dropout
};

// Returns the arguments except those of the mask.
inline AttentionCall attention_call(const AttentionSizes& a, DType dtype,
                                    const Attributes& attributes) {
  return {a,
          dtype,
          AttentionPattern(attributes),
          attributes.number("scale", 1 / std::sqrt(static_cast<double>(a.head_dim))),
          rounds_to_tf32(attributes) && dtype == DType::f32,
          attributes.number("dropout"),
          static_cast<uint64_t>(attributes.integer("stream"))};
}

}  // namespace dltrain
