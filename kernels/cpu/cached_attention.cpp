// cached_attention: heads that share keys and values are computed together. A buffer of the thread
// contains the scores of a few rows (a row is one head of one token) with all keys, so that the
// softmax is one step; products read the caches directly. A row is computed by one thread in the
// order of its keys: its bits depend neither on the number of threads nor on other rows.
#include "cpu/cached_attention.h"

#include <cmath>
#include <limits>

#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"
#include "shared/make_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/cached_attention.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/block_product-inl.h"
#include "cpu/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dltrain::HWY_NAMESPACE {
namespace {

// Replaces scores by exp(score − maximum); returns 1 / their sum. Scores are padded to full blocks
// by −∞.
float weigh(float* scores, int64_t count) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  FloatVec top = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (int64_t i = 0; i < count; i += lanes) top = hn::Max(top, hn::LoadU(d, scores + i));
  const FloatVec shift = hn::MaxOfLanes(d, top);
  FloatVec total = hn::Zero(d);
  for (int64_t i = 0; i < count; i += lanes) {
    const FloatVec w = exp_vec(hn::Sub(hn::LoadU(d, scores + i), shift));
    hn::StoreU(w, d, scores + i);
    total = hn::Add(total, w);
  }
  return 1 / hn::GetLane(hn::SumOfLanes(d, total));
}

// Computes rows [first, first + count) of one sample and key head; the caches contain the new
// tokens.
void attend_cached(const CachedCall& c, int64_t n, int64_t g, int64_t first, int64_t count,
                   float* buffer) {
  const CachedAttentionSizes& s = c.sizes;
  const AttentionSizes& a = s.tokens;
  const AttentionPattern& p = c.pattern;
  const int64_t width = s.width(), group = s.group(), rows = (count + 3) / 4 * 4;
  float *q = buffer, *out = q + kCachedRows * width, *scores = out + kCachedRows * width;
  const auto token = [&](int64_t row) { return (first + row) / group; };
  const auto head = [&](int64_t row) { return g * group + (first + row) % group; };
  std::fill_n(q, 2 * kCachedRows * width, 0.0f);  // out too
  for (int64_t i = 0; i < count; ++i) {
    const float* from = c.q + a.query(n, token(i), head(i));
    for (int64_t d = 0; d < a.head_dim; ++d) q[i * width + d] = from[d] * c.scale;
  }
  const int64_t position = c.positions[n], slot = c.slots[n];
  const int64_t begin = p.first_key(position + token(0)) / kCacheBlock * kCacheBlock;
  const int64_t end = position + token(count - 1) + 1,
                padded = ceil_div(end, kCacheBlock) * kCacheBlock;
  for (int64_t key = begin; key < end; key += kCacheBlock) {
    block_product<F32Product, false>(q, width, c.keys + s.key(slot, g, key, 0), kCacheBlock,
                                     scores + key, s.capacity, rows, a.head_dim, kCacheBlock);
  }
  for (int64_t i = 0; i < rows; ++i) {
    float* row = scores + i * s.capacity;
    if (i >= count) {
      std::fill(row + begin, row + padded, 0.0f);
      continue;
    }
    const int64_t query = position + token(i), from = p.first_key(query);
    constexpr float lowest = -std::numeric_limits<float>::infinity();
    std::fill(row + begin, row + from, lowest);
    std::fill(row + query + 1, row + padded, lowest);
    if (p.alibi) {
      const auto slope = static_cast<float>(alibi_slope(head(i), a.heads));
      for (int64_t key = from; key < query; ++key) {
        row[key] -= slope * static_cast<float>(query - key);
      }
    }
    const float factor = weigh(row + begin, padded - begin);
    for (int64_t key = begin; key < padded; ++key) row[key] *= factor;
  }
  for (int64_t key = begin; key < end; key += kCacheBlock) {
    block_product<F32Product, true>(scores + key, s.capacity, c.values + s.value(slot, g, key),
                                    width, out, width, rows, std::min(kCacheBlock, end - key),
                                    width);
  }
  for (int64_t i = 0; i < count; ++i) {
    std::copy_n(out + i * width, a.head_dim, c.y + a.output(n, token(i), head(i)));
  }
}

}  // namespace
}  // namespace dltrain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dltrain {
namespace {
HWY_EXPORT(attend_cached);

// Writes the new keys and values of one sample and head to the caches, and zeros for padding.
void keep(const CachedCall& c, int64_t n, int64_t g) {
  const CachedAttentionSizes& s = c.sizes;
  const AttentionSizes& a = s.tokens;
  const int64_t there = c.rows(n) / s.group(), slot = c.slots[n];
  for (int64_t t = 0; t < there; ++t) {
    const int64_t position = c.positions[n] + t;
    const float *k = c.k + a.key(n, t, g), *v = c.v + a.value(n, t, g);
    float* to = c.keys + s.key(slot, g, position, 0);
    for (int64_t d = 0; d < a.head_dim; ++d) to[d * kCacheBlock] = k[d];
    std::copy_n(v, a.head_dim, c.values + s.value(slot, g, position));
  }
  for (int64_t t = there; t < a.queries; ++t) {
    std::fill_n(c.y + a.output(n, t, g * s.group()), s.group() * a.head_dim, 0.0f);
  }
}

// `first`: the input with the cached keys.
void run_cached(CachedCall c, size_t first, int64_t parts, const Bindings& b) {
  c.q = b.input<float>(0);
  c.k = b.input<float>(first == 1 ? 0 : 1);
  c.v = b.input<float>(first == 1 ? 0 : 2);
  c.keys = static_cast<float*>(b.inputs[first]);
  c.values = static_cast<float*>(b.inputs[first + 1]);
  c.positions = b.input<int32_t>(first + 2);
  c.counts = b.input<int32_t>(first + 3);
  c.slots = b.input<int32_t>(first + 4);
  c.y = b.output<float>(0);
  const AttentionSizes& a = c.sizes.tokens;
  parallel_each(a.samples * a.kv_heads, 1,
                [&](int64_t i) { keep(c, i / a.kv_heads, i % a.kv_heads); });
  const int64_t blocks = ceil_div(a.queries * c.sizes.group(), kCachedRows);
  const auto function = HWY_DYNAMIC_DISPATCH(attend_cached);
  parallel_parts(a.samples * a.kv_heads * blocks, parts,
                 [&](int64_t begin, int64_t end, int64_t part) {
                   for (int64_t i = begin; i < end; ++i) {
                     const int64_t n = i / blocks / a.kv_heads, row = i % blocks * kCachedRows;
                     const int64_t count = std::min(kCachedRows, c.rows(n) - row);
                     if (count <= 0) continue;
                     function(c, n, i / blocks % a.kv_heads, row, count,
                              static_cast<float*>(b.workspace) + part * c.buffer());
                   }
                 });
}

}  // namespace

std::unique_ptr<Kernel> make_cached_attention(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  CachedCall call;
  call.sizes = cached_attention_sizes(request.inputs, request.attributes);
  call.pattern = AttentionPattern(request.attributes);
  call.scale = static_cast<float>(request.attributes.number(
      "scale", 1 / std::sqrt(static_cast<double>(call.sizes.tokens.head_dim))));
  const int64_t parts = thread_count();
  return make_kernel([call, parts, first = cache_input(request.inputs)](
                         const Bindings& b, Stream&) { run_cached(call, first, parts, b); },
                     static_cast<size_t>(parts * call.buffer()) * sizeof(float));
}

}  // namespace dltrain
#endif
