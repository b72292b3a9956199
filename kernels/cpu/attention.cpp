// attention in blocks of 64 queries by 64 keys with a running maximum and sum a row (Dao et al.
// 2022): memory is a few blocks a thread. Every block of queries is computed by one thread in the
// order of the keys, so that results do not depend on the number of threads. Blocks that a causal
// mask, a window or the length of a sample hides are not computed.
#include "cpu/attention.h"

#include <cmath>
#include <limits>

#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attention.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/block_product-inl.h"
#include "cpu/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dltrain {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kBlock = kAttentionBlock;

// Turns scores into weights exp(score − maximum) and keeps maximum and sum of the row; returns what
// earlier weights of the row must be multiplied with.
float weigh_row(float* scores, int64_t count, float* most, float* sum) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  std::fill(scores + count, scores + kBlock, -std::numeric_limits<float>::infinity());
  FloatVec top = hn::Set(d, *most);
  for (int64_t i = 0; i < kBlock; i += lanes) top = hn::Max(top, hn::LoadU(d, scores + i));
  const float now = hn::GetLane(hn::MaxOfLanes(d, top));
  if (now == -std::numeric_limits<float>::infinity()) {  // every key so far is hidden
    std::fill(scores, scores + kBlock, 0.0f);
    return 1;
  }
  const FloatVec shift = hn::Set(d, now);
  FloatVec total = hn::Zero(d);
  for (int64_t i = 0; i < kBlock; i += lanes) {
    const FloatVec w = exp_vec(hn::Sub(hn::LoadU(d, scores + i), shift));
    hn::StoreU(w, d, scores + i);
    total = hn::Add(total, w);
  }
  const float rescale = std::exp(*most - now);
  *sum = *sum * rescale + hn::GetLane(hn::SumOfLanes(d, total));
  *most = now;
  return rescale;
}

// Scores of keys `key` + [0, count), of which the query sees those from `begin` on.
void hide_and_lean(const AttentionCall& c, int64_t n, int64_t query, int64_t key, int64_t begin,
                   int64_t count, float slope, float* scores) {
  constexpr float lowest = -std::numeric_limits<float>::infinity();
  if (c.pattern.alibi) {
    for (int64_t i = begin; i < count; ++i) {
      scores[i] -= slope * static_cast<float>(std::abs(query - key - i));
    }
  }
  if (const int32_t* shown = c.hidden(n, key)) {
    for (int64_t i = begin; i < count; ++i) {
      if (shown[i] == 0) scores[i] = lowest;
    }
  }
  std::fill(scores, scores + begin, lowest);
}

void scale_row(float* row, int64_t count, float factor) {
  for (int64_t i = 0; i < count; ++i) row[i] *= factor;
}

// Queries [first, first + count) of one sample and head. `buffer`: see attention_buffer.
void attend(const AttentionCall& c, int64_t n, int64_t h, int64_t first, float* y, float* sums,
            float* buffer) {
  const AttentionSizes& a = c.sizes;
  const int64_t width = padded_head(a.head_dim), g = a.kv_head(h);
  const int64_t count = std::min(kBlock, a.queries - first), rows = (count + 3) / 4 * 4;
  float *q = buffer, *kt = q + kBlock * width, *v = kt + kBlock * width, *out = v + kBlock * width,
        *scores = out + kBlock * width, *most = scores + kBlock * kBlock, *sum = most + kBlock;
  copy_block(c.q + a.query(n, first, h), a.query_stride, count, a.head_dim, q, width);
  scale_row(q, kBlock * width, c.scale);
  std::fill(out, out + kBlock * width, 0.0f);
  std::fill(most, most + kBlock, -std::numeric_limits<float>::infinity());
  std::fill(sum, sum + kBlock, 0.0f);
  const AttentionPattern& p = c.pattern;
  const bool plain = p.window == 0 && !p.alibi && !p.masked;
  const auto slope = static_cast<float>(p.alibi ? alibi_slope(h, a.heads) : 0);
  const int64_t all = c.keys_of(n), end = p.end_key(first + count - 1, all);
  for (int64_t key = p.first_key(first) / kBlock * kBlock; key < end; key += kBlock) {
    const int64_t keys = std::min(kBlock, end - key);
    copy_transposed(c.k + a.key(n, key, g), a.key_stride, keys, a.head_dim, kt);
    copy_block(c.v + a.value(n, key, g), a.key_stride, keys, a.head_dim, v, width);
    block_product<false>(q, width, kt, kBlock, scores, kBlock, rows, a.head_dim, kBlock);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t query = first + i, seen = std::min(keys, p.end_key(query, all) - key);
      const int64_t begin = std::max<int64_t>(0, p.first_key(query) - key);
      float* row = scores + i * kBlock;
      if (seen <= begin) {  // only in blocks that other rows look at
        std::fill(row, row + kBlock, 0.0f);
        continue;
      }
      if (!plain) hide_and_lean(c, n, query, key, begin, seen, slope, row);
      const float rescale = weigh_row(row, seen, most + i, sum + i);
      if (rescale != 1) scale_row(out + i * width, width, rescale);
      if (c.dropout > 0) c.drop(n, h, query, key, seen, row, 1);
    }
    block_product<true>(scores, kBlock, v, width, out, width, rows, keys, width);
  }
  for (int64_t i = 0; i < count; ++i) {
    float* to = y + a.output(n, first + i, h);
    const float factor = sum[i] > 0 ? 1 / sum[i] : 0;
    for (int64_t d = 0; d < a.head_dim; ++d) to[d] = out[i * width + d] * factor;
    sums[a.row(n, h, first + i)] =
        sum[i] > 0 ? most[i] + std::log(sum[i]) : std::numeric_limits<float>::infinity();
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dltrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dltrain {
namespace {
HWY_EXPORT(attend);

class Attention final : public Kernel {
 public:
  explicit Attention(const KernelRequest& request)
      : parts_(thread_count()),
        buffer_(4 * kAttentionBlock *
                    padded_head(
                        attention_sizes("attention", request.inputs, request.attributes).head_dim) +
                kAttentionBlock * (kAttentionBlock + 2)) {
    call_ = attention_call(request, 0);
  }

  size_t workspace_bytes() const override {
    return static_cast<size_t>(parts_ * buffer_) * sizeof(float);
  }
  void bind(const Bindings& bindings) override {
    bind_attention(call_, bindings, 0);
    y_ = output<float>(bindings, 0);
    sums_ = output<float>(bindings, 1);
    workspace_ = static_cast<float*>(bindings.workspace);
  }
  void run(Stream&) override {
    const AttentionSizes& a = call_.sizes;
    const int64_t blocks = ceil_div(a.queries, kAttentionBlock);
    const auto function = HWY_DYNAMIC_DISPATCH(attend);
    parallel_parts(a.samples * a.heads * blocks, parts_,
                   [&](int64_t begin, int64_t end, int64_t part) {
                     for (int64_t i = begin; i < end; ++i) {
                       const int64_t row = i / blocks, first = i % blocks * kAttentionBlock;
                       function(call_, row / a.heads, row % a.heads, first, y_, sums_,
                                workspace_ + part * buffer_);
                     }
                   });
  }

 private:
  AttentionCall call_;
  int64_t parts_, buffer_;  // floats of a thread
  float *y_ = nullptr, *sums_ = nullptr, *workspace_ = nullptr;
};

}  // namespace

AttentionCall attention_call(const KernelRequest& request, size_t first) {
  const Attributes& at = request.attributes;
  AttentionCall c;
  c.sizes = attention_sizes(request.op, request.inputs.subspan(first), at);
  c.scale =
      static_cast<float>(at.number("scale", 1 / std::sqrt(static_cast<double>(c.sizes.head_dim))));
  c.pattern = AttentionPattern(at);
  const size_t mask = first + (c.sizes.packed ? 1 : 3);
  c.lengths = c.pattern.masked && request.inputs[mask].shape.rank() == 1;
  c.dropout = at.number("dropout");
  c.stream = static_cast<uint64_t>(at.integer("stream"));
  return c;
}

void bind_attention(AttentionCall& c, const Bindings& bindings, size_t first) {
  const size_t tensors = c.sizes.packed ? 1 : 3;
  c.q = input<const float>(bindings, first);
  c.k = input<const float>(bindings, c.sizes.packed ? first : first + 1);
  c.v = input<const float>(bindings, c.sizes.packed ? first : first + 2);
  c.mask = c.pattern.masked ? input<const int32_t>(bindings, first + tensors) : nullptr;
  const size_t state = first + tensors + (c.pattern.masked ? 1 : 0);
  c.state = c.dropout > 0 ? input<const StepState>(bindings, state) : nullptr;
}

MadeKernel make_attention(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  return std::make_unique<Attention>(request);
}

}  // namespace dltrain
#endif
