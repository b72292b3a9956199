// Queues cached_attention (lib/ops/cached_attention.cpp; layouts of the caches in
// lib/ops/cached_attention.h, mirrored here). dtype: f32, f64, bf16 or f16 of everything; heads of
// up to 256 elements.
#pragma once

#include "cuda/attention.h"

namespace dltrain {

struct CachedAttentionCall {
  AttentionCall tokens;  // of the new tokens; its `keys` are those of the same tokens
  int64_t capacity = 0;  // tokens of a slot
  int64_t block = 64;    // tokens of a block of keys
  int64_t width = 0;     // elements of a value in the cache

  DLTRAIN_HD int64_t cached_key(int64_t slot, int64_t kv_head, int64_t token, int64_t d) const {
    const int64_t blocks = capacity / block;
    return (((slot * tokens.kv_heads + kv_head) * blocks + token / block) * tokens.head_dim + d) *
               block +
           token % block;
  }
  DLTRAIN_HD int64_t cached_value(int64_t slot, int64_t kv_head, int64_t token) const {
    return ((slot * tokens.kv_heads + kv_head) * capacity + token) * width;
  }
};

struct CachedAttentionData {
  const void *q = nullptr, *k = nullptr, *v = nullptr;  // of a packed tensor the same
  void *keys = nullptr, *values = nullptr, *y = nullptr;
  const int32_t *positions = nullptr, *counts = nullptr, *slots = nullptr;
};

void launch_cached_attention(const CachedAttentionCall& call, const CachedAttentionData& data,
                             CudaStream stream);

}  // namespace dltrain
