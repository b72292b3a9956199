// dropout: Philox blocks in vector lanes; each lane draws the four consecutive elements that share
// a counter block (base/philox.h), so the mask is bit-identical to the scalar definition.
#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "cpu/convert.h"
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "ops/shard_position.h"
#include "ops/step_state.h"

#ifndef DLTRAIN_CPU_DROPOUT_ONCE
#define DLTRAIN_CPU_DROPOUT_ONCE
namespace dltrain {
namespace {
struct DropoutArguments {
  const void* x;
  void* y;
  uint64_t seed, stream, step;
  uint64_t first;      // global index of x[0]
  uint32_t threshold;  // kept when the draw's upper 24 bits are at least this
  float scale;
};
}  // namespace
}  // namespace dltrain
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/dropout.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/element-inl.h"
#include "shared/make_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace dltrain::HWY_NAMESPACE {
namespace {
using Words = hn::ScalableTag<uint32_t>;
using WordVec = hn::Vec<Words>;

struct Halves {
  WordVec low, high;
};

// Multiplies 32 × 32 → 64 bits in every lane.
HWY_INLINE Halves multiply(WordVec a, WordVec factor) {
  const Words d;
  const hn::RepartitionToWide<Words> wide;
  const WordVec even = hn::BitCast(d, hn::MulEven(a, factor));
  const WordVec a_odd = hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, a)));
  const WordVec odd = hn::BitCast(d, hn::MulEven(a_odd, factor));
  // even: low0 high0 low2 high2 …; odd: low1 high1 low3 high3 …
  const WordVec odd_low = hn::BitCast(d, hn::ShiftLeft<32>(hn::BitCast(wide, odd)));
  const WordVec even_high = hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, even)));
  return {hn::OddEven(odd_low, even), hn::OddEven(odd, even_high)};
}

// Draws for counter blocks block … block + lanes − 1 of `key`, written in element order.
HWY_INLINE void draw(uint64_t key, uint64_t block, uint64_t counter_high, uint32_t* out) {
  const Words d;
  HWY_ALIGN uint32_t low[HWY_MAX_BYTES / 4], high[HWY_MAX_BYTES / 4];
  for (size_t i = 0; i < hn::Lanes(d); ++i) {
    low[i] = static_cast<uint32_t>(block + i);
    high[i] = static_cast<uint32_t>((block + i) >> 32);
  }
  WordVec c0 = hn::Load(d, low), c1 = hn::Load(d, high);
  WordVec c2 = hn::Set(d, static_cast<uint32_t>(counter_high));
  WordVec c3 = hn::Set(d, static_cast<uint32_t>(counter_high >> 32));
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  const WordVec m0 = hn::Set(d, 0xD2511F53u), m1 = hn::Set(d, 0xCD9E8D57u);
  for (int round = 0; round < 10; ++round) {
    const Halves p0 = multiply(c0, m0), p1 = multiply(c2, m1);
    c0 = hn::Xor(hn::Xor(p1.high, c1), hn::Set(d, k0));
    c2 = hn::Xor(hn::Xor(p0.high, c3), hn::Set(d, k1));
    c1 = p1.low;
    c3 = p0.low;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  hn::StoreInterleaved4(c0, c1, c2, c3, d, out);
}

// Elements [begin, end) of the micro-batch.
template <typename T>
void dropout_elements(const DropoutArguments& a, int64_t begin, int64_t end) {
  const hn::ScalableTag<float> d;
  const Words du;
  const hn::RebindToSigned<Words> di;
  const size_t lanes = hn::Lanes(d);
  const uint64_t key = a.seed ^ (a.stream * 0x9E3779B97F4A7C15ull);
  const uint64_t counter_high = (a.step << 20) ^ (a.stream >> 44);
  const auto scale = hn::Set(d, a.scale);
  const auto below = hn::Set(di, static_cast<int32_t>(a.threshold) - 1);
  HWY_ALIGN uint32_t bits[4 * HWY_MAX_BYTES / 4];
  for (int64_t at = begin; at < end;) {
    const uint64_t index = a.first + static_cast<uint64_t>(at);
    draw(key, index >> 2, counter_high, bits);
    // With index % 4 != 0 the first draws of the block belong to elements before `at`.
    const size_t skipped = index & 3;
    const int64_t count = std::min<int64_t>(end - at, static_cast<int64_t>(4 * lanes - skipped));
    for (int64_t i = 0; i < count; i += static_cast<int64_t>(lanes)) {
      const size_t n =
          static_cast<size_t>(std::min<int64_t>(count - i, static_cast<int64_t>(lanes)));
      const auto words = hn::MaskedLoad(hn::FirstN(du, n), du, bits + skipped + i);
      const auto drawn = hn::BitCast(di, hn::ShiftRight<8>(words));
      const auto kept = hn::RebindMask(d, hn::Gt(drawn, below));
      const auto x = load_n(static_cast<const T*>(a.x) + at + i, n);
      store_n(hn::IfThenElseZero(kept, hn::Mul(x, scale)), static_cast<T*>(a.y) + at + i, n);
    }
    at += count;
  }
}

void dropout_range(DType dtype, const DropoutArguments& a, int64_t begin, int64_t end) {
  with_element_type(dtype, [&]<typename T>(T) { dropout_elements<T>(a, begin, end); });
}

}  // namespace
}  // namespace dltrain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dltrain {
namespace {
HWY_EXPORT(dropout_range);

}  // namespace

std::unique_ptr<Kernel> make_dropout(const KernelRequest& request) {
  const TensorSpec& x = request.inputs[0];
  if (widen_function(x.dtype) == nullptr) return nullptr;
  const int64_t count = x.shape.elements();
  const int64_t per_sample = count / std::max<int64_t>(1, x.shape[0]);
  const double rate = request.attributes.number("rate");
  const ShardPosition position(request.attributes, count);
  const int64_t adjacent = position.adjacent();
  DropoutArguments arguments{};
  arguments.stream = static_cast<uint64_t>(request.attributes.integer("stream"));
  // u ≥ rate for u = draw / 2²⁴, without rounding the rate to f32.
  arguments.threshold = static_cast<uint32_t>(std::ceil(rate * 16777216.0));
  arguments.scale = static_cast<float>(1 / (1 - rate));
  return make_kernel([=, dtype = x.dtype](const Bindings& b, Stream&) {
    const StepInputs& state = b.input<StepState>(1)->in;
    DropoutArguments a = arguments;
    a.x = b.inputs[0];
    a.y = b.outputs[0];
    a.seed = state.seed;
    a.step = static_cast<uint64_t>(state.step);
    a.first = static_cast<uint64_t>(state.sample_offset * position.whole(per_sample));
    const auto function = HWY_DYNAMIC_DISPATCH(dropout_range);
    parallel_for(count, 4096, [&](int64_t begin, int64_t end) {
      while (begin < end) {  // rows of a shard are not adjacent in the whole tensor
        const int64_t row_end = std::min(end, (begin / adjacent + 1) * adjacent);
        DropoutArguments row = a;
        row.first += static_cast<uint64_t>(position(begin) - begin);
        function(dtype, row, begin, row_end);
        begin = row_end;
      }
    });
  });
}

}  // namespace dltrain
#endif
