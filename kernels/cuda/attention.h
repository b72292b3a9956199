// Arguments of the kernels of attention and cached_attention (lib/ops/attention.cpp has layouts and
// formulas; the members mirror lib/ops/attention.h). dtype: f32, f64, bf16 or f16 of all tensors
// except the sums, which have its accumulation dtype. Heads have up to 256 elements.
#pragma once

#include <cmath>

#include "base/host_device.h"
#include "ops/attention.h"
#include "ops/rules.h"
#include "ops/step_state.h"
#include "tensor/dtype.h"

namespace dltrain {

struct AttentionCall {
  static constexpr int64_t kMaxHeadDim = 256;
  DType dtype = DType::f32;
  int64_t samples = 0, queries = 0, keys = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t first_head = 0, all_heads = 0;
  // first_query of AttentionSizes, …
  int64_t query_offset = 0, key_offset = 0, all_queries = 0, all_keys = 0;
  int64_t query_stride = 0, key_stride = 0;  // from token to token
  int64_t first_key_head = 0;                // heads before the first key's in its tensor
  int64_t value_offset = 0;                  // from a key to its value, packed; else 0
  double scale = 1;
  bool tf32 = false;  // operands of products are rounded (ops/rules.h)
  bool causal = false, alibi = false;
  int64_t window = 0;
  enum class Mask : uint8_t { none, lengths, tokens, documents } mask = Mask::none;
  double dropout = 0;
  uint64_t stream = 0;

  DLTRAIN_HD int64_t query_at(int64_t sample, int64_t token, int64_t head) const {
    return (sample * queries + token) * query_stride + head * head_dim;
  }
  DLTRAIN_HD int64_t key_at(int64_t sample, int64_t token, int64_t kv_head) const {
    return (sample * keys + token) * key_stride + (first_key_head + kv_head) * head_dim;
  }
  DLTRAIN_HD int64_t value_at(int64_t sample, int64_t token, int64_t kv_head) const {
    return key_at(sample, token, kv_head) + value_offset;
  }
  DLTRAIN_HD int64_t output_at(int64_t sample, int64_t token, int64_t head) const {
    return ((sample * queries + token) * heads + head) * head_dim;
  }
  DLTRAIN_HD int64_t row_at(int64_t sample, int64_t head, int64_t token) const {
    return (sample * heads + head) * queries + token;
  }
  // A query may attend to keys [first_key, end_key); queries [first_query, end_query) may attend to
  // a key.
  DLTRAIN_HD int64_t first_key(int64_t query) const {
    const int64_t at = query_offset + query;
    return window > 0 && at >= window ? at - window + 1 : 0;
  }
  DLTRAIN_HD int64_t end_key(int64_t query) const {
    const int64_t at = query_offset + query;
    const int64_t end = causal ? at + 1 : window > 0 ? at + window : keys;
    return end < keys ? end : keys;
  }
  DLTRAIN_HD int64_t first_query(int64_t key) const {
    const int64_t at = key - query_offset, first = causal ? at : window > 0 ? at - window + 1 : 0;
    return first > 0 ? first : 0;
  }
  DLTRAIN_HD int64_t end_query(int64_t key) const {
    const int64_t end = window > 0 ? key - query_offset + window : queries;
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
  const AttentionPattern pattern(attributes);
  return {.dtype = dtype,
          .samples = a.samples,
          .queries = a.queries,
          .keys = a.keys,
          .heads = a.heads,
          .kv_heads = a.kv_heads,
          .head_dim = a.head_dim,
          .first_head = a.first_head,
          .all_heads = a.all_heads,
          .query_offset = a.first_query,
          .key_offset = a.key_offset,
          .all_queries = a.all_queries,
          .all_keys = a.all_keys,
          .query_stride = a.query_stride,
          .key_stride = a.key_stride,
          .first_key_head = a.packed ? a.heads : 0,
          .value_offset = a.packed ? a.kv_heads * a.head_dim : 0,
          .scale = attributes.number("scale", 1 / std::sqrt(static_cast<double>(a.head_dim))),
          .tf32 = rounds_to_tf32(attributes) && dtype == DType::f32,
          .causal = pattern.causal,
          .alibi = pattern.alibi,
          .window = pattern.window,
          .dropout = attributes.number("dropout"),
          .stream = static_cast<uint64_t>(attributes.integer("stream"))};
}

}  // namespace dltrain
