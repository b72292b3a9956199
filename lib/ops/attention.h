// Sizes and memory layout of attention's operands, for shape rules and kernels.
#pragma once

#include <cmath>
#include <string_view>

#include "base/host_device.h"
#include "ops/op.h"

namespace dltrain {

// Returns the ALiBi slope, which is subtracted from a score per token of distance (Press et al.
// 2022): 2^(−8·i/heads) for head i = 1 …; if heads is not a power of two, the remaining heads take
// the odd slopes of twice as many heads.
DLTRAIN_HD double alibi_slope(int64_t head, int64_t heads) {
  int64_t power = 1;
  while (2 * power <= heads) power *= 2;
  const double i = head < power ? static_cast<double>(head + 1)
                                : static_cast<double>(head - power) + 0.5;  // of 2·power: the odd
  return std::exp2(-8 * i / static_cast<double>(power));
}

struct AttentionSizes {
  int64_t samples = 0, queries = 0, keys = 0;  // tokens
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  // With heads that are sharded over ranks: the first of these heads, and all of them. Slopes and
  // random numbers of a head are those of its number among all.
  int64_t first_head = 0, all_heads = 0;
  // With queries, or keys, that are a part of the text: the position of the first query among the
  // keys (negative before them), that of the first key in the text, and the tokens of the whole
  // text, by which random numbers are counted.
  int64_t first_query = 0, key_offset = 0, all_queries = 0, all_keys = 0;
  bool packed = false;
  // Distance between tokens, in elements, for queries, and for keys and values.
  int64_t query_stride = 0, key_stride = 0;

  // Returns the key and value head that a query head attends to.
  DLTRAIN_HD int64_t kv_head(int64_t head) const { return head / (heads / kv_heads); }
  // The element at which a token's vector begins in its tensor. A packed tensor has the queries of
  // all heads first, then the keys, then the values.
  DLTRAIN_HD int64_t query(int64_t sample, int64_t token, int64_t head) const {
    return (sample * queries + token) * query_stride + head * head_dim;
  }
  DLTRAIN_HD int64_t key(int64_t sample, int64_t token, int64_t kv_head) const {
    return (sample * keys + token) * key_stride + (packed ? heads + kv_head : kv_head) * head_dim;
  }
  DLTRAIN_HD int64_t value(int64_t sample, int64_t token, int64_t kv_head) const {
    return key(sample, token, kv_head) + (packed ? kv_heads * head_dim : 0);
  }
  // The same for the output and for the logarithms of the sums.
  DLTRAIN_HD int64_t output(int64_t sample, int64_t token, int64_t head) const {
    return ((sample * queries + token) * heads + head) * head_dim;
  }
  DLTRAIN_HD int64_t row(int64_t sample, int64_t head, int64_t token) const {
    return (sample * heads + head) * queries + token;
  }
  // The first random number of a query's weights, of a sample in the global batch.
  DLTRAIN_HD int64_t random_row(int64_t sample, int64_t head, int64_t token) const {
    const int64_t query = key_offset + first_query + token;
    return ((sample * all_heads + first_head + head) * all_queries + query) * all_keys + key_offset;
  }
  DLTRAIN_HD double slope(int64_t head) const { return alibi_slope(first_head + head, all_heads); }
};

// The keys that a query attends to, apart from a mask.
struct AttentionPattern {
  bool causal = false;
  int64_t window = 0;  // 0: none
  bool alibi = false;
  bool masked = false;      // the last tensor defines the valid keys
  bool documents = false;   // of each query, by the number of tokens before it in its document
  int64_t first_query = 0;  // the position of the first query among the keys

  explicit AttentionPattern(const Attributes& attributes)
      : causal(attributes.boolean("causal")),
        window(attributes.integer("window")),
        alibi(attributes.boolean("alibi")),
        masked(attributes.boolean("masked")),
        documents(attributes.boolean("documents")),
        first_query(attributes.integer("first_query") - attributes.integer("first_key")) {}
  AttentionPattern() = default;

  // Keys [first_key, end_key) of `keys`.
  DLTRAIN_HD int64_t first_key(int64_t query) const {
    const int64_t at = first_query + query;
    return window > 0 && at >= window ? at - window + 1 : 0;
  }
  DLTRAIN_HD int64_t end_key(int64_t query, int64_t keys) const {
    const int64_t at = first_query + query;
    const int64_t end = causal ? at + 1 : window > 0 ? at + window : keys;
    return end < keys ? end : keys;
  }
};

// `inputs` begin with the queries (or the packed tensor). Throws Error(usage) for invalid shapes.
AttentionSizes attention_sizes(std::string_view op, SpecSpan inputs, const Attributes& attributes);

}  // namespace dltrain
