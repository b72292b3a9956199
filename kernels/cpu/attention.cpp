// attention in blocks of 64 queries by 64 keys with a running maximum and sum per row (Dao et al.
// 2022): memory is a few blocks per thread. Every block of queries is computed by one thread in the
// order of the keys, so that results do not depend on the number of threads. Blocks that are masked
// entirely (causal, window, length of the sample, other documents) are not computed. In bf16 and
// TF32 the weights are rounded before they are multiplied with the values; all sums are f32.
#include "cpu/attention.h"

#include <cmath>
#include <limits>

#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/processor.h"
#include "cpu/support.h"
#include "ops/rules.h"
#include "shared/make_kernel.h"

#ifndef DLTRAIN_CPU_ATTENTION_ONCE
#define DLTRAIN_CPU_ATTENTION_ONCE
namespace dltrain {
namespace {
// Sample, head and first query of a block; y and sums of all; the thread's buffer.
using AttendFunction = void (*)(const AttentionCall& call, int64_t sample, int64_t head,
                                int64_t first, void* y, float* sums, float* buffer);
}  // namespace
}  // namespace dltrain
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attention.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/attention_blocks-inl.h"
#include "cpu/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dltrain::HWY_NAMESPACE {
namespace {

// Converts scores to weights exp(score − maximum) and updates maximum and sum of the row; returns
// the factor for earlier weights of the row.
float online_softmax_row(float* scores, int64_t count, float* most, float* sum) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t used =
      ceil_div(count, lanes) * lanes;  // the block size is a multiple of all vector sizes
  std::fill(scores + count, scores + used, -std::numeric_limits<float>::infinity());
  std::fill(scores + used, scores + kBlock, 0.0f);
  FloatVec top = hn::Set(d, *most);
  for (int64_t i = 0; i < used; i += lanes) top = hn::Max(top, hn::LoadU(d, scores + i));
  const float now = hn::GetLane(hn::MaxOfLanes(d, top));
  if (now == -std::numeric_limits<float>::infinity()) {  // all keys so far are masked
    std::fill(scores, scores + kBlock, 0.0f);
    return 1;
  }
  const FloatVec shift = hn::Set(d, now);
  FloatVec total = hn::Zero(d);
  for (int64_t i = 0; i < used; i += lanes) {
    const FloatVec w = exp_vec(hn::Sub(hn::LoadU(d, scores + i), shift));
    hn::StoreU(w, d, scores + i);
    total = hn::Add(total, w);
  }
  const float rescale = *most == now ? 1 : std::exp(*most - now);
  *sum = *sum * rescale + hn::GetLane(hn::SumOfLanes(d, total));
  *most = now;
  return rescale;
}

// Applies masks and ALiBi to the scores of keys `key` + [0, count); those before `begin` are
// masked.
void mask_and_bias(const AttentionCall& c, int64_t n, int64_t query, int64_t key, int64_t begin,
                   int64_t count, float slope, float* scores) {
  constexpr float lowest = -std::numeric_limits<float>::infinity();
  if (c.pattern.alibi) {
    for (int64_t i = begin; i < count; ++i) {
      scores[i] -= slope * static_cast<float>(std::abs(c.pattern.first_query + query - key - i));
    }
  }
  if (const int32_t* visible = c.key_mask(n, key)) {
    for (int64_t i = begin; i < count; ++i) {
      if (visible[i] == 0) scores[i] = lowest;
    }
  }
  std::fill(scores, scores + begin, lowest);
}

void scale_row(float* row, int64_t count, float factor) {
  for (int64_t i = 0; i < count; ++i) row[i] *= factor;
}

// Computes queries [first, first + count) of one sample and head. `buffer`: see attention_buffer.
template <typename Blocks>
void attend(const AttentionCall& c, int64_t n, int64_t h, int64_t first, void* y, float* sums,
            float* buffer) {
  using Element = typename Blocks::Element;
  constexpr int64_t kStep = Blocks::kStep;
  const auto* queries = static_cast<const Element*>(c.q);
  const auto *keys_in = static_cast<const Element*>(c.k),
             *values = static_cast<const Element*>(c.v);
  const AttentionSizes& a = c.sizes;
  const int64_t width = padded_head(a.head_dim), g = a.kv_head(h);
  const int64_t count = std::min(kBlock, a.queries - first), rows = (count + 3) / 4 * 4;
  float *q = buffer, *kt = q + kBlock * width, *v = kt + kBlock * width, *out = v + kBlock * width,
        *scores = out + kBlock * width, *weights = scores + kBlock * kBlock,
        *most = weights + kBlock * kBlock, *sum = most + kBlock;
  Blocks::rows(queries + a.query(n, first, h), a.query_stride, count, a.head_dim, q, width);
  if (!Blocks::kRounds) scale_row(q, kBlock * width, c.scale);
  std::fill(out, out + kBlock * width, 0.0f);
  std::fill(most, most + kBlock, -std::numeric_limits<float>::infinity());
  std::fill(sum, sum + kBlock, 0.0f);
  const AttentionPattern& p = c.pattern;
  const bool plain = p.window == 0 && !p.alibi && !p.masked;
  const auto slope = static_cast<float>(p.alibi ? a.slope(h) : 0);
  const int64_t all = c.keys_of(n), end = p.end_key(first + count - 1, all);
  for (int64_t key = c.first_key(n, first) / kBlock * kBlock; key < end; key += kBlock) {
    const int64_t keys = std::min(kBlock, end - key);
    const bool diagonal = p.causal && key == p.first_query + first;  // no query attends later
    Blocks::transposed(keys_in + a.key(n, key, g), a.key_stride, keys, a.head_dim, kt, width);
    Blocks::paired(values + a.value(n, key, g), a.key_stride, keys, a.head_dim, v, width);
    block_product<Blocks, false>(q, width / kStep, kt, kBlock, scores, kBlock, rows,
                                 ceil_div(a.head_dim, kStep), kBlock,
                                 diagonal ? Half::lower_columns : Half::whole);
    if (Blocks::kRounds) scale_row(scores, rows * kBlock, c.scale);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t query = first + i, seen = std::min(keys, p.end_key(query, all) - key);
      const int64_t begin = std::max<int64_t>(0, c.first_key(n, query) - key);
      float* row = scores + i * kBlock;
      if (seen <= begin) {  // only other rows attend to this block
        std::fill(row, row + kBlock, 0.0f);
        continue;
      }
      if (!plain) mask_and_bias(c, n, query, key, begin, seen, slope, row);
      const float rescale = online_softmax_row(row, seen, most + i, sum + i);
      if (rescale != 1) scale_row(out + i * width, width, rescale);
      if (c.dropout > 0) c.drop(n, h, query, key, seen, row, 1);
    }
    block_product<Blocks, true>(Blocks::left(scores, rows, weights), kBlock / kStep, v, width, out,
                                width, rows, ceil_div(keys, kStep), width,
                                diagonal ? Half::lower_inner : Half::whole);
  }
  for (int64_t i = 0; i < count; ++i) {
    store_row(out + i * width, a.head_dim, sum[i] > 0 ? 1 / sum[i] : 0,
              static_cast<Element*>(y) + a.output(n, first + i, h));
    sums[a.row(n, h, first + i)] =
        sum[i] > 0 ? most[i] + std::log(sum[i]) : std::numeric_limits<float>::infinity();
  }
}

AttendFunction choose(DType dtype, bool tf32) {
  if (dtype == DType::f32 && tf32) return attend<Tf32Blocks>;
#if DLTRAIN_AVX512()
  if (dtype == DType::bf16 && has_fast_bf16_dot()) return attend<Bf16Blocks>;
#endif
  return dtype == DType::f32 ? attend<F32Blocks> : nullptr;
}

}  // namespace
}  // namespace dltrain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dltrain {
namespace {
HWY_EXPORT(choose);

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

AttentionCall bound_attention(AttentionCall c, const Bindings& bindings, size_t first) {
  const size_t tensors = c.sizes.packed ? 1 : 3;
  c.q = bindings.inputs[first];
  c.k = bindings.inputs[c.sizes.packed ? first : first + 1];
  c.v = bindings.inputs[c.sizes.packed ? first : first + 2];
  c.mask = c.pattern.masked ? bindings.input<int32_t>(first + tensors) : nullptr;
  const size_t state = first + tensors + (c.pattern.masked ? 1 : 0);
  c.state = c.dropout > 0 ? bindings.input<StepState>(state) : nullptr;
  return c;
}

bool of_one_format(const KernelRequest& request) {
  const DType dtype = request.inputs[0].dtype;
  const auto fits = [&](const TensorSpec& spec) {
    return !is_floating(spec.dtype) || spec.dtype == dtype || spec.dtype == DType::f32;
  };
  return !request.accumulate && std::all_of(request.inputs.begin(), request.inputs.end(), fits) &&
         std::all_of(request.outputs.begin(), request.outputs.end(), fits);
}

std::unique_ptr<Kernel> make_attention(const KernelRequest& request) {
  const AttendFunction function =
      HWY_DYNAMIC_DISPATCH(choose)(request.inputs[0].dtype, rounds_to_tf32(request.attributes));
  if (function == nullptr || !of_one_format(request)) return nullptr;
  const AttentionCall call = attention_call(request, 0);
  const int64_t parts = thread_count();
  const int64_t floats = 4 * kAttentionBlock * padded_head(call.sizes.head_dim) +
                         kAttentionBlock * (2 * kAttentionBlock + 2);  // of a thread
  return make_kernel(
      [call, function, parts, floats](const Bindings& b, Stream&) {
        const AttentionCall bound = bound_attention(call, b, 0);
        const AttentionSizes& a = call.sizes;
        const int64_t blocks = ceil_div(a.queries, kAttentionBlock);
        auto* workspace = static_cast<float*>(b.workspace);
        parallel_parts(a.samples * a.heads * blocks, parts,
                       [&](int64_t begin, int64_t end, int64_t part) {
                         for (int64_t i = begin; i < end; ++i) {
                           const int64_t row = i / blocks, first = i % blocks * kAttentionBlock;
                           function(bound, row / a.heads, row % a.heads, first, b.outputs[0],
                                    b.output<float>(1), workspace + part * floats);
                         }
                       });
      },
      static_cast<size_t>(parts * floats) * sizeof(float));
}

}  // namespace dltrain
#endif
