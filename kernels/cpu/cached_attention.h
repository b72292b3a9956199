// Shared by the parts of the kernel of cached_attention.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/cached_attention.h"

namespace dltrain {

inline constexpr int64_t kCachedRows = 32;  // per thread at a time

struct CachedCall {
  CachedAttentionSizes sizes;
  AttentionPattern pattern;
  float scale = 1;
  const float *q = nullptr, *k = nullptr, *v = nullptr;
  float *keys = nullptr, *values = nullptr, *y = nullptr;
  const int32_t *positions = nullptr, *counts = nullptr, *slots = nullptr;

  // Returns the number of rows of a sample and key head: group() per token.
  int64_t rows(int64_t n) const {
    return std::clamp<int64_t>(counts[n], 0, sizes.tokens.queries) * sizes.group();
  }
  // Returns the size of a thread's buffer in floats.
  int64_t buffer() const { return kCachedRows * (2 * sizes.width() + sizes.capacity); }
};

}  // namespace dltrain
