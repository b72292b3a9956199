// Sizes and places of attention's operands, for shape rules and kernels.
#pragma once

#include <string_view>

#include "ops/op.h"

namespace dltrain {

struct AttentionSizes {
  int64_t samples = 0, queries = 0, keys = 0;  // tokens
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool packed = false;
  // From token to token, in elements, of the queries, and of the keys and values.
  int64_t query_stride = 0, key_stride = 0;

  // The key and value head that a head of the queries looks at.
  int64_t kv_head(int64_t head) const { return head / (heads / kv_heads); }
  // Where a token's vector begins in its tensor. In a packed one the queries of all heads come
  // first, then the keys, then the values.
  int64_t query(int64_t sample, int64_t token, int64_t head) const {
    return (sample * queries + token) * query_stride + head * head_dim;
  }
  int64_t key(int64_t sample, int64_t token, int64_t kv_head) const {
    return (sample * keys + token) * key_stride + (packed ? heads + kv_head : kv_head) * head_dim;
  }
  int64_t value(int64_t sample, int64_t token, int64_t kv_head) const {
    return key(sample, token, kv_head) + (packed ? kv_heads * head_dim : 0);
  }
  // In the output, and in the logarithms of the sums.
  int64_t output(int64_t sample, int64_t token, int64_t head) const {
    return ((sample * queries + token) * heads + head) * head_dim;
  }
  int64_t row(int64_t sample, int64_t head, int64_t token) const {
    return (sample * heads + head) * queries + token;
  }
};

// `inputs` begin with the queries (or the packed tensor). Throws Error(usage) when they do not fit.
AttentionSizes attention_sizes(std::string_view op, SpecSpan inputs, const Attributes& attributes);

}  // namespace dltrain
