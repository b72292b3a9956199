// What the kernel classes of attention and of cached_attention make of sizes and attributes.
#pragma once

#include <cmath>

#include "cuda/attention.h"
#include "ops/attention.h"

namespace dltrain {

// All but the mask.
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
          .query_stride = a.query_stride,
          .key_stride = a.key_stride,
          .first_key_head = a.packed ? a.heads : 0,
          .value_offset = a.packed ? a.kv_heads * a.head_dim : 0,
          .scale = attributes.number("scale", 1 / std::sqrt(static_cast<double>(a.head_dim))),
          .causal = pattern.causal,
          .alibi = pattern.alibi,
          .window = pattern.window,
          .dropout = attributes.number("dropout"),
          .stream = static_cast<uint64_t>(attributes.integer("stream"))};
}

}  // namespace dltrain
