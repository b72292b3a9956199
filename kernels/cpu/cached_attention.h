// What the parts of the kernel of cached_attention share.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/cached_attention.h"

namespace dltrain {

inline constexpr int64_t kCachedRows = 32;  // of a thread at a time

struct CachedCall {
  CachedAttentionSizes sizes;
  AttentionPattern pattern;
  float scale = 1;
  const float *q = nullptr, *k = nullptr, *v = nullptr;
  float *keys = nullptr, *values = nullptr, *y = nullptr;
  const int32_t *positions = nullptr, *counts = nullptr, *slots = nullptr;

  // Rows of a sample and head of keys: group() for each token.
  int64_t rows(int64_t n) const {
    return std::clamp<int64_t>(counts[n], 0, sizes.tokens.queries) * sizes.group();
  }
  // Floats that a thread needs.
  int64_t buffer() const { return kCachedRows * (2 * sizes.width() + sizes.capacity); }
};

}  // namespace dltrain
