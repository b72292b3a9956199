// attention_backward: weights are recomputed from the scores and the rows' sums, block by block
// (Dao et al. 2022). One thread computes a key and value head of a sample, in a fixed order, so
// that results do not depend on the number of threads. Blocks have the keys as rows: sums and
// deltas of the queries are then vectors along a row. In bf16 and TF32 weights and ds are rounded
// before they are multiplied; all sums are f32 until a gradient is complete.
#include <cmath>

#include "cpu/attention.h"
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/processor.h"
#include "cpu/support.h"
#include "ops/rules.h"
#include "shared/make_kernel.h"

#ifndef DLTRAIN_CPU_ATTENTION_BACKWARD_ONCE
#define DLTRAIN_CPU_ATTENTION_BACKWARD_ONCE
namespace dltrain {
namespace {
struct BackwardCall {
  AttentionCall forward;
  const void *dy = nullptr, *y = nullptr;  // with the dtype of the queries, like the gradients
  const float* sums = nullptr;
  void *dq = nullptr, *dk = nullptr, *dv = nullptr;
};

// Sample, head of keys and values; the thread's buffer.
using GroupFunction = void (*)(const BackwardCall& call, int64_t sample, int64_t group,
                               float* buffer);

// The buffers of a thread, in the layouts of attention_blocks-inl.h.
struct BackwardBuffers {
  BackwardBuffers(float* memory, int64_t width, int64_t padded_queries)
      : next(memory),
        k(take(kAttentionBlock * width)),
        v(take(kAttentionBlock * width)),
        k_paired(take(kAttentionBlock * width)),
        q_transposed(take(kAttentionBlock * width)),
        dy_transposed(take(kAttentionBlock * width)),
        q_paired(take(kAttentionBlock * width)),
        dy_paired(take(kAttentionBlock * width)),
        dk(take(kAttentionBlock * width)),
        dv(take(kAttentionBlock * width)),
        weights(take(kAttentionBlock * kAttentionBlock)),
        ds(take(kAttentionBlock * kAttentionBlock)),
        transposed(take(kAttentionBlock * kAttentionBlock)),
        mask(take(kAttentionBlock * kAttentionBlock)),
        left(take(kAttentionBlock * kAttentionBlock)),
        delta(take(padded_queries)),
        dq(take(padded_queries * width)) {}
  // `padded_queries`: of all heads of a group.
  static int64_t floats(int64_t width, int64_t padded_queries) {
    return 9 * kAttentionBlock * width + 5 * kAttentionBlock * kAttentionBlock +
           padded_queries * (width + 1);
  }

  float* take(int64_t count) {
    float* const out = next;
    next += count;
    return out;
  }

  float* next;
  float *k, *v, *k_paired, *q_transposed, *dy_transposed, *q_paired,
      *dy_paired;                                  // blocks of tokens
  float *dk, *dv;                                  // likewise, sums
  float *weights, *ds, *transposed, *mask, *left;  // blocks of keys by queries
  float* delta;                                    // rowsum(dy∘y) of every query
  float* dq;                                       // of every query
};

int64_t padded_queries(const AttentionSizes& a) {
  return (a.queries + kAttentionBlock - 1) / kAttentionBlock * kAttentionBlock;
}
}  // namespace
}  // namespace dltrain
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attention_backward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/attention_blocks-inl.h"
#include "cpu/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dltrain::HWY_NAMESPACE {
namespace {

// Computes one key's row of a block: weights from scores, and ds from dP (in `ds`) and delta.
// `mask`: factors of the dropout, or nullptr. Only queries [begin, end) attend to the key. `lean`:
// the ALiBi terms that are subtracted from the scores, or nullptr.
void key_row(float* weights, float* ds, const float* mask, const float* sums, const float* delta,
             const float* lean, float scale, int64_t begin, int64_t end) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const FloatVec s = hn::Set(d, scale);
  for (int64_t i = begin / lanes * lanes; i < end; i += lanes) {
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

// Computes weights and ds of a block of queries and a block of keys, whose scores and dP are in
// `weights` and `ds`, with masks applied.
void weigh_block(const BackwardCall& c, const BackwardBuffers& b, int64_t n, int64_t h, int64_t key,
                 int64_t keys, int64_t query, int64_t queries, const float* delta) {
  const AttentionCall& f = c.forward;
  const AttentionPattern& p = f.pattern;
  float sums[kBlock], lean[kBlock];
  std::fill(std::copy_n(c.sums + f.sizes.row(n, h, query), queries, sums), sums + kBlock, 0.0f);
  if (f.dropout > 0) {
    std::fill(b.mask, b.mask + kBlock * kBlock, 1.0f);
    for (int64_t t = 0; t < queries; ++t) f.drop(n, h, query + t, key, keys, b.mask + t, kBlock);
  }
  const int32_t* visible = f.key_mask(n, key);
  const auto slope = static_cast<float>(p.alibi ? f.sizes.slope(h) : 0);
  for (int64_t s = 0; s < keys; ++s) {
    // Index of the key's token among the queries of the block.
    const int64_t at = key + s - p.first_query - query;
    int64_t begin = p.causal ? at : p.window > 0 ? at - p.window + 1 : 0;
    int64_t end = p.window > 0 ? at + p.window : kBlock;
    if (visible != nullptr && visible[s] == 0) end = 0;
    if (p.documents) {  // without the queries of later documents
      end = queries;
      while (end > 0 && f.first_key(n, query + end - 1) > key + s) --end;
    }
    end = std::clamp<int64_t>(end, 0, kBlock);
    begin = std::clamp<int64_t>(begin, 0, end);
    if (p.alibi) {
      for (int64_t t = 0; t < kBlock; ++t) lean[t] = slope * static_cast<float>(std::abs(at - t));
    }
    key_row(b.weights + s * kBlock, b.ds + s * kBlock,
            f.dropout > 0 ? b.mask + s * kBlock : nullptr, sums, delta, p.alibi ? lean : nullptr,
            f.scale, begin, end);
  }
  std::fill(b.weights + keys * kBlock, b.weights + kBlock * kBlock, 0.0f);
  std::fill(b.ds + keys * kBlock, b.ds + kBlock * kBlock, 0.0f);
}

// Computes a block of queries with the block of keys in `b`; delta and dq begin at its first query.
template <typename Blocks>
void query_block(const BackwardCall& c, const BackwardBuffers& b, int64_t n, int64_t h, int64_t key,
                 int64_t keys, int64_t query, const float* delta, float* dq) {
  using Element = typename Blocks::Element;
  constexpr int64_t kStep = Blocks::kStep;
  const AttentionCall& f = c.forward;
  const AttentionSizes& a = f.sizes;
  const int64_t width = padded_head(a.head_dim), dim = a.head_dim, rows = (keys + 3) / 4 * 4;
  const int64_t queries = std::min(kBlock, a.queries - query), dy_stride = a.heads * dim;
  const auto* q = static_cast<const Element*>(f.q) + a.query(n, query, h);
  const auto* dy = static_cast<const Element*>(c.dy) + a.output(n, query, h);
  // In a diagonal block of causal attention a key affects only queries from its own token on.
  const bool diagonal = f.pattern.causal && f.pattern.first_query + query == key;
  const Half columns = diagonal ? Half::upper_columns : Half::whole;
  const Half inner = diagonal ? Half::upper_inner : Half::whole;
  Blocks::transposed(q, a.query_stride, queries, dim, b.q_transposed, width);
  Blocks::transposed(dy, dy_stride, queries, dim, b.dy_transposed, width);
  Blocks::paired(q, a.query_stride, queries, dim, b.q_paired, width);
  Blocks::paired(dy, dy_stride, queries, dim, b.dy_paired, width);
  block_product<Blocks, false>(b.k, width / kStep, b.q_transposed, kBlock, b.weights, kBlock, rows,
                               ceil_div(dim, kStep), kBlock, columns);
  block_product<Blocks, false>(b.v, width / kStep, b.dy_transposed, kBlock, b.ds, kBlock, rows,
                               ceil_div(dim, kStep), kBlock, columns);
  weigh_block(c, b, n, h, key, keys, query, queries, delta);
  block_product<Blocks, true>(Blocks::left(b.weights, rows, b.left), kBlock / kStep, b.dy_paired,
                              width, b.dv, width, rows, ceil_div(queries, kStep), width, inner);
  block_product<Blocks, true>(Blocks::left(b.ds, rows, b.left), kBlock / kStep, b.q_paired, width,
                              b.dk, width, rows, ceil_div(queries, kStep), width, inner);
  transpose_block(b.ds, b.transposed);
  block_product<Blocks, true>(Blocks::left(b.transposed, kBlock, b.left), kBlock / kStep,
                              b.k_paired, width, dq, width, (queries + 3) / 4 * 4,
                              ceil_div(keys, kStep), width,
                              diagonal ? Half::lower_inner : Half::whole);
}

// rowsum(dy∘y)
template <typename Element>
float row_delta(const Element* dy, const Element* y, int64_t count) {
  const ElementTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum = hn::Zero(d);
  for (int64_t i = 0; i < count; i += lanes) {
    const auto in = static_cast<size_t>(std::min(lanes, count - i));
    sum = hn::MulAdd(load_n(dy + i, in), load_n(y + i, in), sum);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// Computes one key and value head of one sample, with the query heads that share it.
template <typename Blocks>
void group_backward(const BackwardCall& c, int64_t n, int64_t g, float* buffer) {
  using Element = typename Blocks::Element;
  const AttentionCall& f = c.forward;
  const AttentionSizes& a = f.sizes;
  const int64_t dim = a.head_dim, width = padded_head(dim), shared = a.heads / a.kv_heads;
  const int64_t padded = padded_queries(a);
  const BackwardBuffers b(buffer, width, shared * padded);
  std::fill(b.dq, b.dq + shared * padded * width, 0.0f);
  std::fill(b.delta, b.delta + shared * padded, 0.0f);
  for (int64_t h = 0; h < shared; ++h) {
    for (int64_t t = 0; t < a.queries; ++t) {
      const int64_t at = a.output(n, t, g * shared + h);
      b.delta[h * padded + t] = row_delta(static_cast<const Element*>(c.dy) + at,
                                          static_cast<const Element*>(c.y) + at, dim);
    }
  }
  const AttentionPattern& p = f.pattern;
  const int64_t all = f.keys_of(n);
  for (int64_t key = 0; key < a.keys; key += kBlock) {
    const int64_t keys = std::min(kBlock, a.keys - key), there = std::min(keys, all - key);
    const auto* k = static_cast<const Element*>(f.k) + a.key(n, key, g);
    Blocks::rows(k, a.key_stride, keys, dim, b.k, width);
    Blocks::paired(k, a.key_stride, keys, dim, b.k_paired, width);
    Blocks::rows(static_cast<const Element*>(f.v) + a.value(n, key, g), a.key_stride, keys, dim,
                 b.v, width);
    std::fill(b.dk, b.dk + kBlock * width, 0.0f);
    std::fill(b.dv, b.dv + kBlock * width, 0.0f);
    // Range of queries that attend to a key of the block.
    const int64_t at = key - p.first_query;
    const int64_t before = p.causal ? at : p.window > 0 ? at - p.window + 1 : 0;
    const int64_t begin = std::max<int64_t>(0, before) / kBlock * kBlock;
    const int64_t end = p.window > 0 ? std::min(a.queries, at + keys - 1 + p.window) : a.queries;
    for (int64_t h = 0; h < shared && there > 0; ++h) {
      for (int64_t query = begin; query < end; query += kBlock) {
        if (f.first_key(n, query) >= key + there) break;  // as all later queries
        const int64_t row = h * padded + query;
        query_block<Blocks>(c, b, n, g * shared + h, key, there, query, b.delta + row,
                            b.dq + row * width);
      }
    }
    for (int64_t s = 0; s < keys; ++s) {
      store_row(b.dk + s * width, dim, 1, static_cast<Element*>(c.dk) + a.key(n, key + s, g));
      store_row(b.dv + s * width, dim, 1, static_cast<Element*>(c.dv) + a.value(n, key + s, g));
    }
  }
  for (int64_t h = 0; h < shared; ++h) {
    for (int64_t t = 0; t < a.queries; ++t) {
      store_row(b.dq + (h * padded + t) * width, dim, 1,
                static_cast<Element*>(c.dq) + a.query(n, t, g * shared + h));
    }
  }
}

GroupFunction choose(DType dtype, bool tf32) {
  if (dtype == DType::f32 && tf32) return group_backward<Tf32Blocks>;
#if DLTRAIN_AVX512()
  if (dtype == DType::bf16 && has_fast_bf16_dot()) return group_backward<Bf16Blocks>;
#endif
  return dtype == DType::f32 ? group_backward<F32Blocks> : nullptr;
}

}  // namespace
}  // namespace dltrain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dltrain {
namespace {
HWY_EXPORT(choose);
}  // namespace

std::unique_ptr<Kernel> make_attention_backward(const KernelRequest& request) {
  const GroupFunction function =
      HWY_DYNAMIC_DISPATCH(choose)(request.outputs[0].dtype, rounds_to_tf32(request.attributes));
  const bool alike = request.inputs[0].dtype == request.outputs[0].dtype &&
                     request.inputs[1].dtype == request.outputs[0].dtype;
  if (function == nullptr || !alike || !of_one_format(request)) return nullptr;
  const AttentionCall forward = attention_call(request, 3);
  const AttentionSizes a = forward.sizes;
  const int64_t parts = thread_count(),
                floats = BackwardBuffers::floats(  // of a thread
                    padded_head(a.head_dim), a.heads / a.kv_heads * padded_queries(a));
  return make_kernel(
      [forward, function, a, parts, floats](const Bindings& b, Stream&) {
        BackwardCall call;
        call.forward = bound_attention(forward, b, 3);
        call.dy = b.inputs[0];
        call.y = b.inputs[1];
        call.sums = b.input<float>(2);
        call.dq = b.outputs[0];
        call.dk = b.outputs[a.packed ? 0 : 1];
        call.dv = b.outputs[a.packed ? 0 : 2];
        auto* workspace = static_cast<float*>(b.workspace);
        parallel_parts(
            a.samples * a.kv_heads, parts, [&](int64_t begin, int64_t end, int64_t part) {
              for (int64_t i = begin; i < end; ++i) {
                function(call, i / a.kv_heads, i % a.kv_heads, workspace + part * floats);
              }
            });
      },
      static_cast<size_t>(parts * floats) * sizeof(float));
}

}  // namespace dltrain
#endif
