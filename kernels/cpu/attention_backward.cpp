// attention_backward: weights are computed again from the scores and the rows' sums, block by block
// (Dao et al. 2022). One thread does all that concerns a head of keys and values of a sample, in a
// fixed order, so that results do not depend on the number of threads. Blocks are held with the
// keys as rows: sums and deltas of the queries are then vectors along a row.
#include <cmath>

#include "cpu/attention.h"
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"

#ifndef DLTRAIN_CPU_ATTENTION_BACKWARD_ONCE
#define DLTRAIN_CPU_ATTENTION_BACKWARD_ONCE
namespace dltrain {
namespace {
struct BackwardCall {
  AttentionCall forward;
  const float *dy = nullptr, *y = nullptr, *sums = nullptr;
  float *dq = nullptr, *dk = nullptr, *dv = nullptr;
};

// The buffers of a thread.
struct BackwardBuffers {
  BackwardBuffers(float* memory, int64_t width)
      : k(memory),
        v(k + kAttentionBlock * width),
        q(v + kAttentionBlock * width),
        dy(q + kAttentionBlock * width),
        qt(dy + kAttentionBlock * width),
        dyt(qt + kAttentionBlock * width),
        dk(dyt + kAttentionBlock * width),
        dv(dk + kAttentionBlock * width),
        dq(dv + kAttentionBlock * width),
        weights(dq + kAttentionBlock * width),
        ds(weights + kAttentionBlock * kAttentionBlock),
        turned(ds + kAttentionBlock * kAttentionBlock),
        mask(turned + kAttentionBlock * kAttentionBlock),
        delta(mask + kAttentionBlock * kAttentionBlock) {}
  static int64_t floats(int64_t width, int64_t heads_of_group, int64_t queries) {
    const int64_t padded = (queries + kAttentionBlock - 1) / kAttentionBlock * kAttentionBlock;
    return 9 * kAttentionBlock * width + 4 * kAttentionBlock * kAttentionBlock +
           heads_of_group * padded;
  }

  float *k, *v, *q, *dy, *qt, *dyt, *dk, *dv, *dq;  // blocks of tokens
  float *weights, *ds, *turned, *mask;              // blocks of keys by queries
  float* delta;                                     // rowsum(dy∘y) of every query
};
}  // namespace
}  // namespace dltrain
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attention_backward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/block_product-inl.h"
#include "cpu/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dltrain {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kBlock = kAttentionBlock;

// One key's row of a block: weights from scores, and ds from dP (in `ds`) and delta. `mask`: what
// the dropout multiplies with, or nullptr. Only queries [begin, end) see the key; `lean`: what
// ALiBi takes from the scores, or nullptr.
void key_row(float* weights, float* ds, const float* mask, const float* sums, const float* delta,
             const float* lean, float scale, int64_t begin, int64_t end) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const FloatVec s = hn::Set(d, scale);
  for (int64_t i = 0; i < kBlock; i += lanes) {
    FloatVec shift = hn::LoadU(d, sums + i);
    if (lean != nullptr) shift = hn::Add(shift, hn::LoadU(d, lean + i));
    FloatVec w = exp_vec(hn::MulSub(hn::LoadU(d, weights + i), s, shift));
    FloatVec dp = hn::LoadU(d, ds + i);
    FloatVec dropped = w;
    if (mask != nullptr) {
      const FloatVec m = hn::LoadU(d, mask + i);
      dp = hn::Mul(dp, m);
      dropped = hn::Mul(w, m);
    }
    hn::StoreU(hn::Mul(hn::Mul(w, s), hn::Sub(dp, hn::LoadU(d, delta + i))), d, ds + i);
    hn::StoreU(dropped, d, weights + i);
  }
  std::fill(weights, weights + begin, 0.0f);
  std::fill(ds, ds + begin, 0.0f);
  std::fill(weights + end, weights + kBlock, 0.0f);
  std::fill(ds + end, ds + kBlock, 0.0f);
}

// Are the gradients of the queries zero before the first block? Otherwise the block of keys that
// every query looks at first overwrites them.
bool zeroed(const AttentionCall& f) {
  return f.pattern.window > 0 || f.lengths;
}

// A block of queries against the block of keys in `b`.
void query_block(const BackwardCall& c, const BackwardBuffers& b, int64_t n, int64_t h, int64_t key,
                 int64_t keys, int64_t query, const float* delta) {
  const AttentionCall& f = c.forward;
  const AttentionSizes& a = f.sizes;
  const int64_t width = padded_head(a.head_dim), rows = (keys + 3) / 4 * 4;
  const int64_t queries = std::min(kBlock, a.queries - query);
  const float *q = f.q + a.query(n, query, h), *dy = c.dy + a.output(n, query, h);
  const int64_t dy_stride = a.heads * a.head_dim;
  copy_block(q, a.query_stride, queries, a.head_dim, b.q, width);
  copy_block(dy, dy_stride, queries, a.head_dim, b.dy, width);
  copy_transposed(q, a.query_stride, queries, a.head_dim, b.qt);
  copy_transposed(dy, dy_stride, queries, a.head_dim, b.dyt);
  float sums[kBlock];
  std::fill(std::copy_n(c.sums + a.row(n, h, query), queries, sums), sums + kBlock, 0.0f);
  block_product<false>(b.k, width, b.qt, kBlock, b.weights, kBlock, rows, a.head_dim, kBlock);
  block_product<false>(b.v, width, b.dyt, kBlock, b.ds, kBlock, rows, a.head_dim, kBlock);
  if (f.dropout > 0) {
    std::fill(b.mask, b.mask + kBlock * kBlock, 1.0f);
    for (int64_t t = 0; t < queries; ++t) f.drop(n, h, query + t, key, keys, b.mask + t, kBlock);
  }
  const AttentionPattern& p = f.pattern;
  const int32_t* shown = f.hidden(n, key);
  const auto slope = static_cast<float>(p.alibi ? alibi_slope(h, a.heads) : 0);
  float lean[kBlock];
  for (int64_t s = 0; s < keys; ++s) {
    const int64_t at = key + s - query;  // the key's own place among the queries of the block
    int64_t begin = p.causal ? at : p.window > 0 ? at - p.window + 1 : 0;
    int64_t end = p.window > 0 ? at + p.window : kBlock;
    if (shown != nullptr && shown[s] == 0) end = 0;
    end = std::clamp<int64_t>(end, 0, kBlock);
    begin = std::clamp<int64_t>(begin, 0, end);
    if (p.alibi) {
      for (int64_t t = 0; t < kBlock; ++t) lean[t] = slope * static_cast<float>(std::abs(at - t));
    }
    key_row(b.weights + s * kBlock, b.ds + s * kBlock,
            f.dropout > 0 ? b.mask + s * kBlock : nullptr, sums, delta, p.alibi ? lean : nullptr,
            f.scale, begin, end);
  }
  std::fill(b.weights + keys * kBlock, b.weights + rows * kBlock, 0.0f);
  std::fill(b.ds + keys * kBlock, b.ds + kBlock * kBlock, 0.0f);
  block_product<true>(b.weights, kBlock, b.dy, width, b.dv, width, rows, queries, width);
  block_product<true>(b.ds, kBlock, b.q, width, b.dk, width, rows, queries, width);
  for (int64_t s = 0; s < kBlock; ++s) {
    for (int64_t t = 0; t < kBlock; ++t) b.turned[t * kBlock + s] = b.ds[s * kBlock + t];
  }
  block_product<false>(b.turned, kBlock, b.k, width, b.dq, width, (queries + 3) / 4 * 4, keys,
                       width);
  for (int64_t t = 0; t < queries; ++t) {
    float* to = c.dq + a.query(n, query + t, h);
    const float* from = b.dq + t * width;
    if (key == 0 && !zeroed(f)) {
      std::copy_n(from, a.head_dim, to);
    } else {
      for (int64_t d = 0; d < a.head_dim; ++d) to[d] += from[d];
    }
  }
}

// One head of keys and values of one sample, and the heads of queries that look at it.
void group_backward(const BackwardCall& c, int64_t n, int64_t g, float* buffer) {
  const AttentionCall& f = c.forward;
  const AttentionSizes& a = f.sizes;
  const int64_t width = padded_head(a.head_dim), shared = a.heads / a.kv_heads;
  const int64_t padded = (a.queries + kBlock - 1) / kBlock * kBlock;
  const BackwardBuffers b(buffer, width);
  std::fill(b.delta, b.delta + shared * padded, 0.0f);
  for (int64_t h = 0; h < shared; ++h) {
    for (int64_t t = 0; t < a.queries; ++t) {
      const int64_t at = a.output(n, t, g * shared + h);
      float sum = 0;
      for (int64_t d = 0; d < a.head_dim; ++d) sum += c.dy[at + d] * c.y[at + d];
      b.delta[h * padded + t] = sum;
      if (zeroed(f)) std::fill_n(c.dq + a.query(n, t, g * shared + h), a.head_dim, 0.0f);
    }
  }
  const AttentionPattern& p = f.pattern;
  const int64_t all = f.keys_of(n);
  for (int64_t key = 0; key < a.keys; key += kBlock) {
    const int64_t keys = std::min(kBlock, a.keys - key), there = std::min(keys, all - key);
    copy_block(f.k + a.key(n, key, g), a.key_stride, keys, a.head_dim, b.k, width);
    copy_block(f.v + a.value(n, key, g), a.key_stride, keys, a.head_dim, b.v, width);
    std::fill(b.dk, b.dk + kBlock * width, 0.0f);
    std::fill(b.dv, b.dv + kBlock * width, 0.0f);
    // Queries that look at a key of the block.
    const int64_t before = p.window > 0 ? std::max<int64_t>(0, key - p.window + 1) : 0;
    const int64_t begin = p.causal ? key : before / kBlock * kBlock;
    const int64_t end = p.window > 0 ? std::min(a.queries, key + keys - 1 + p.window) : a.queries;
    for (int64_t h = 0; h < shared && there > 0; ++h) {
      for (int64_t query = begin; query < end; query += kBlock) {
        query_block(c, b, n, g * shared + h, key, there, query, b.delta + h * padded + query);
      }
    }
    for (int64_t s = 0; s < keys; ++s) {
      std::copy_n(b.dk + s * width, a.head_dim, c.dk + a.key(n, key + s, g));
      std::copy_n(b.dv + s * width, a.head_dim, c.dv + a.value(n, key + s, g));
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dltrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dltrain {
namespace {
HWY_EXPORT(group_backward);

class AttentionBackward final : public Kernel {
 public:
  explicit AttentionBackward(const KernelRequest& request) : parts_(thread_count()) {
    call_.forward = attention_call(request, 3);
    const AttentionSizes& a = call_.forward.sizes;
    buffer_ = BackwardBuffers::floats(padded_head(a.head_dim), a.heads / a.kv_heads, a.queries);
  }

  size_t workspace_bytes() const override {
    return static_cast<size_t>(parts_ * buffer_) * sizeof(float);
  }
  void bind(const Bindings& bindings) override {
    bind_attention(call_.forward, bindings, 3);
    call_.dy = input<const float>(bindings, 0);
    call_.y = input<const float>(bindings, 1);
    call_.sums = input<const float>(bindings, 2);
    const bool packed = call_.forward.sizes.packed;
    call_.dq = output<float>(bindings, 0);
    call_.dk = output<float>(bindings, packed ? 0 : 1);
    call_.dv = output<float>(bindings, packed ? 0 : 2);
    workspace_ = static_cast<float*>(bindings.workspace);
  }
  void run(Stream&) override {
    const AttentionSizes& a = call_.forward.sizes;
    const auto function = HWY_DYNAMIC_DISPATCH(group_backward);
    parallel_parts(a.samples * a.kv_heads, parts_, [&](int64_t begin, int64_t end, int64_t part) {
      for (int64_t i = begin; i < end; ++i) {
        function(call_, i / a.kv_heads, i % a.kv_heads, workspace_ + part * buffer_);
      }
    });
  }

 private:
  BackwardCall call_;
  int64_t parts_, buffer_ = 0;  // floats of a thread
  float* workspace_ = nullptr;
};

}  // namespace

MadeKernel make_attention_backward(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  return std::make_unique<AttentionBackward>(request);
}

}  // namespace dltrain
#endif
