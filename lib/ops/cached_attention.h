// Memory layout of the key-value cache of decoding, for the shape rule, layers and kernels.
#pragma once

#include <string_view>

#include "ops/attention.h"

namespace dltrain {

// Keys are stored in transposed blocks of kCacheBlock tokens, so that the scores of a block are
// vectors: [slots, kv_heads, blocks, head_dim, kCacheBlock]. Values are stored by token, with heads
// padded with zeros to full vectors: [slots, kv_heads, blocks · kCacheBlock, cache_width].
inline constexpr int64_t kCacheBlock = 64;

constexpr int64_t cache_width(int64_t head_dim) {
  return (head_dim + 15) / 16 * 16;
}

struct CacheSpecs {
  TensorSpec keys, values;
};
// Returns the specs of caches for `slots` texts of up to `capacity` tokens each.
CacheSpecs cache_specs(int64_t slots, int64_t capacity, int64_t kv_heads, int64_t head_dim,
                       DType dtype);

// The sizes of the new tokens' operands, and of the caches.
struct CachedAttentionSizes {
  AttentionSizes tokens;  // keys: those of the same tokens
  int64_t slots = 0, capacity = 0;
  int64_t group() const { return tokens.heads / tokens.kv_heads; }  // heads that share keys
  int64_t width() const { return cache_width(tokens.head_dim); }

  // Element `d` of the key of a token, and where its value begins.
  int64_t key(int64_t slot, int64_t kv_head, int64_t token, int64_t d) const {
    const int64_t blocks = capacity / kCacheBlock, block = token / kCacheBlock;
    return (((slot * tokens.kv_heads + kv_head) * blocks + block) * tokens.head_dim + d) *
               kCacheBlock +
           token % kCacheBlock;
  }
  int64_t value(int64_t slot, int64_t kv_head, int64_t token) const {
    return ((slot * tokens.kv_heads + kv_head) * capacity + token) * width();
  }
};

// Inputs before the caches: three, or a packed one.
inline size_t cache_input(SpecSpan inputs) {
  return inputs[0].shape.rank() == 3 ? 1 : 3;
}

// Returns the sizes of a request. Throws Error(usage) for invalid inputs.
CachedAttentionSizes cached_attention_sizes(SpecSpan inputs, const Attributes& attributes);

}  // namespace dltrain
