#include "cpu/matmul_tiles.h"

#include <algorithm>
#include <bit>
#include <type_traits>

#include "cpu/support.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/matmul_tiles.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/block_product-inl.h"
#include "cpu/element-inl.h"
#include "cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dltrain::HWY_NAMESPACE {
namespace {
#if DLTRAIN_AVX512()

using Tag = hn::ScalableTag<float>;
using Vec = hn::Vec<Tag>;
constexpr int64_t kLanes = 16;
constexpr int64_t kTileHeight = 8;
constexpr int64_t kFetchSteps = 8;  // words between two prefetched lines

struct F32Words : F32Product {
  using Element = float;
  // The factor's vectors are columns in memory: one row is one word of each.
  static HWY_INLINE Vec across(const float* row, const float*, size_t lanes) {
    return load_n(row, lanes);
  }
  // The factor's vectors are rows in memory: the first words of one.
  static HWY_INLINE Vec along(const float* row) { return hn::LoadU(Tag(), row); }
};

struct Bf16Words : Bf16Product {
  using Element = uint16_t;
  // Two rows per word; the second may be missing.
  static HWY_INLINE Vec across(const uint16_t* row, const uint16_t* next, size_t lanes) {
    const HalfTag half;
    const BitsTag bits;
    const auto mask = hn::FirstN(half, lanes);
    BitsVec word = hn::PromoteTo(bits, hn::MaskedLoad(mask, half, row));
    if (next != nullptr) {
      word = hn::Or(word, hn::ShiftLeft<16>(hn::PromoteTo(bits, hn::MaskedLoad(mask, half, next))));
    }
    return hn::BitCast(Tag(), word);
  }
  static HWY_INLINE Vec along(const uint16_t* row) {
    return hn::BitCast(Tag(), hn::LoadU(hn::RepartitionToNarrow<BitsTag>(), row));
  }
};

// bf16 widened to f32, where products of bf16 are slower.
struct WideWords : F32Product {
  using Element = uint16_t;
  static HWY_INLINE Vec across(const uint16_t* row, const uint16_t*, size_t lanes) {
    return load_n(reinterpret_cast<const Bf16*>(row), lanes);
  }
  static HWY_INLINE Vec along(const uint16_t* row) { return across(row, nullptr, kLanes); }
};

// Returns word `word` of the vector at `row`; elements beyond the factor are zero.
template <typename Words>
HWY_INLINE uint32_t word_of(const typename Words::Element* row, int64_t word, int64_t inner) {
  if constexpr (std::is_same_v<Words, F32Words>) {
    return std::bit_cast<uint32_t>(row[word]);
  } else if constexpr (Words::kStep == 1) {
    return static_cast<uint32_t>(row[word]) << 16;
  } else {
    const uint32_t low = row[2 * word];
    const uint32_t high = 2 * word + 1 < inner ? row[2 * word + 1] : 0;
    return low | high << 16;
  }
}

// Packs vectors that are rows in memory: transposes 16 at a time word by word.
template <typename Words>
void pack_along(const MatmulFactor& f, int64_t first_word, int64_t words, int64_t first, float* to,
                int64_t stride) {
  constexpr int64_t kStep = Words::kStep;
  const auto* from = static_cast<const typename Words::Element*>(f.data) + first * f.stride;
  const int64_t count = std::min<int64_t>(kLanes, f.outer - first);
  const int64_t whole = std::min(words, f.inner / kStep - first_word);
  int64_t w = 0;
  for (; count == kLanes && w + kLanes <= whole; w += kLanes) {
    const auto* block = from + (first_word + w) * kStep;
    // A row that consists of words is read in place.
    if (sizeof(typename Words::Element) * kStep == sizeof(float) && f.stride % kStep == 0) {
      transpose_16x16(reinterpret_cast<const float*>(block), f.stride / kStep, to + w * stride,
                      stride);
      continue;
    }
    alignas(64) float rows[kLanes * kLanes];
    for (int64_t i = 0; i < kLanes; ++i) {
      hn::Store(Words::along(block + i * f.stride), Tag(), rows + i * kLanes);
    }
    transpose_16x16(rows, kLanes, to + w * stride, stride);
  }
  auto* out = reinterpret_cast<uint32_t*>(to);
  for (; w < words; ++w) {
    for (int64_t i = 0; i < kLanes; ++i) {
      out[w * stride + i] =
          i < count ? word_of<Words>(from + i * f.stride, first_word + w, f.inner) : 0;
    }
  }
}

// Packs vectors that are columns in memory: reads rows in order, each over all groups.
template <typename Words>
void pack_across(const MatmulFactor& f, const MatmulPack& p) {
  const Tag d;
  const auto* from = static_cast<const typename Words::Element*>(f.data) + p.first;
  for (int64_t w = 0; w < p.words; ++w) {
    const int64_t row = (p.first_word + w) * Words::kStep;
    const auto* now = from + row * f.stride;
    const auto* next = row + 1 < f.inner ? now + f.stride : nullptr;
    float* to = p.to + w * p.step_stride;
    for (int64_t g = 0; g < p.groups; ++g) {
      const int64_t at = g * kLanes;
      const auto lanes =
          static_cast<size_t>(std::clamp<int64_t>(f.outer - p.first - at, 0, kLanes));
      hn::StoreU(Words::across(now + at, next == nullptr ? nullptr : next + at, lanes), d,
                 to + g * p.group_stride);
    }
  }
}

template <typename Words>
void pack(const MatmulFactor& f, const MatmulPack& p) {
  if (!f.inner_rows) return pack_across<Words>(f, p);
  for (int64_t g = 0; g < p.groups; ++g) {
    const int64_t first = p.first + g * kLanes;
    float* to = p.to + g * p.group_stride;
    if (first < f.outer) {
      pack_along<Words>(f, p.first_word, p.words, first, to, p.step_stride);
      continue;
    }
    for (int64_t w = 0; w < p.words; ++w) std::fill_n(to + w * p.step_stride, kLanes, 0.0f);
  }
}

// Prefetches the lines of a MatmulFetch, one per call.
class Fetcher {
 public:
  explicit Fetcher(const MatmulFetch& f)
      : at_(f.data),
        lines_((f.row_bytes + 63) / 64),
        left_(lines_),
        rows_(f.rows),
        jump_(f.stride - 64 * lines_) {}
  HWY_INLINE void next() {
    if (rows_ <= 0) return;
    __builtin_prefetch(at_, 0, 2);
    at_ += 64;
    if (--left_ > 0) return;
    left_ = lines_;
    at_ += jump_;
    --rows_;
  }

 private:
  const char* at_;
  int64_t lines_, left_, rows_, jump_;
};

// Computes rows [row, row + 8) of a panel, of which the first `count` exist.
template <typename Words, int kVectors>
HWY_INLINE void run_tile(const MatmulPanel& p, int64_t row, int64_t count, Fetcher& fetcher) {
  const Tag d;
  Vec sum[kTileHeight][kVectors];
#pragma GCC unroll 8
  for (int m = 0; m < kTileHeight; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[m][v] = hn::Zero(d);
  }
  // Prefetches the tile's output, so that it is in cache when the sums are complete.
  const auto* output = p.low == nullptr
                           ? reinterpret_cast<const char*>(p.sums + row * p.sums_stride)
                           : static_cast<const char*>(p.low) + 2 * row * p.low_stride;
  const int64_t output_stride = p.low == nullptr ? 4 * p.sums_stride : 2 * p.low_stride;
  const int64_t output_bytes = (p.low == nullptr ? 4 : 2) * p.columns;
  for (int64_t m = 0; m < count; ++m) {
    for (int64_t b = 0; b < output_bytes; b += 64) {
      __builtin_prefetch(output + m * output_stride + b, 1);
    }
    __builtin_prefetch(output + m * output_stride + output_bytes - 1, 1);
  }
  const float* left = p.left + row / kMatmulRows * kMatmulRows * p.words + row % kMatmulRows;
  const float* right = p.right;
  const auto step = [&]() HWY_ATTR {
    Vec b[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) b[v] = hn::LoadU(d, right + v * kLanes);
#pragma GCC unroll 8
    for (int m = 0; m < kTileHeight; ++m) {
      const Vec a = hn::Set(d, left[m]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[m][v] = Words::multiply_add(a, b[v], sum[m][v]);
    }
    left += kMatmulRows;
    right += kMatmulColumns;
  };
  int64_t k = 0;
  for (; k + kFetchSteps <= p.words; k += kFetchSteps) {
    fetcher.next();
#pragma GCC unroll 2
    for (int u = 0; u < kFetchSteps; ++u) step();
  }
  for (; k < p.words; ++k) step();
#pragma GCC unroll 8
  for (int m = 0; m < kTileHeight; ++m) {
    if (m >= count) break;
    float* sums = p.sums + (row + m) * p.sums_stride;
    auto* low = static_cast<Bf16*>(p.low) + (row + m) * p.low_stride;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const int64_t at = v * kLanes;
      const auto lanes = static_cast<size_t>(v + 1 == kVectors ? p.columns - at : kLanes);
      Vec y = sum[m][v];
      if (p.add) y = hn::Add(y, load_n(sums + at, lanes));
      if (p.bias != nullptr) y = hn::Add(y, load_n(p.bias + at, lanes));
      p.low == nullptr ? store_n(y, sums + at, lanes) : store_n(y, low + at, lanes);
    }
  }
}

template <typename Words, int kVectors>
void run_tiles(const MatmulPanel& p) {
  Fetcher fetcher(p.fetch);
  for (int64_t row = 0; row < p.rows; row += kTileHeight) {
    run_tile<Words, kVectors>(p, row, std::min(kTileHeight, p.rows - row), fetcher);
  }
}

template <typename Words>
void multiply(const MatmulPanel& p) {
  with_constant<3>(ceil_div(p.columns, kLanes),
                   [&](auto vectors) HWY_ATTR { run_tiles<Words, vectors>(p); });
}

template <typename Words>
constexpr MatmulFunctions kFunctions{Words::kStep, sizeof(typename Words::Element), pack<Words>,
                                     multiply<Words>};

const MatmulFunctions* choose(DType dtype, bool bf16_pairs) {
  if (dtype == DType::f32) return &kFunctions<F32Words>;
  if (dtype != DType::bf16) return nullptr;
  return bf16_pairs ? &kFunctions<Bf16Words> : &kFunctions<WideWords>;
}
#else
const MatmulFunctions* choose(DType, bool) {
  return nullptr;
}
#endif

}  // namespace
}  // namespace dltrain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dltrain {
namespace {
HWY_EXPORT(choose);
}

const MatmulFunctions* matmul_functions(DType dtype, bool bf16_pairs) {
  return HWY_DYNAMIC_DISPATCH(choose)(dtype, bf16_pairs);
}

}  // namespace dltrain
#endif
