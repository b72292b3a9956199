#include "cpu/panel_product.h"

#include <algorithm>

#include "cpu/processor.h"
#include "cpu/support.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/panel_product.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/block_product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dltrain::HWY_NAMESPACE {
namespace {
#if DLTRAIN_AVX512()
using Tag = hn::CappedTag<float, 16>;
using Vec = hn::Vec<Tag>;
constexpr int64_t kLanes = 16;
constexpr int kRows = 6;  // with 4 vectors of columns 24 of 32 registers hold sums

struct InF32 : F32Product {
  static void pack(const void* const* rows, int64_t count, int64_t first, int64_t width,
                   float* panel, int64_t stride) {
    const Tag d;
    for (int64_t i = 0; i < count; ++i) {
      const float* from = static_cast<const float*>(rows[i]) + first;
      float* to = panel + i * stride;
      int64_t j = 0;
      for (; j + kLanes <= width; j += kLanes) hn::StoreU(hn::LoadU(d, from + j), d, to + j);
      if (j < width) {
        const auto mask = hn::FirstN(d, static_cast<size_t>(width - j));
        hn::StoreU(hn::MaskedLoad(mask, d, from + j), d, to + j);
      }
    }
  }
};

struct InBf16 : Bf16Product {
  static void pack(const void* const* rows, int64_t count, int64_t first, int64_t width,
                   float* panel, int64_t stride) {
    alignas(64) static constexpr uint16_t kLower[32] = {0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,
                                                        37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
                                                        11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    const hn::CappedTag<uint16_t, 32> d;
    using Halves = hn::Vec<decltype(d)>;
    const Halves lower = hn::Load(d, kLower);
    const Halves upper = hn::Add(lower, hn::Set(d, uint16_t{16}));
    for (int64_t i = 0; i < count; i += 2) {
      const uint16_t* even = static_cast<const uint16_t*>(rows[i]) + first;
      const uint16_t* odd =
          i + 1 < count ? static_cast<const uint16_t*>(rows[i + 1]) + first : nullptr;
      auto* to = reinterpret_cast<uint16_t*>(panel + i / 2 * stride);
      const auto put = [&](Halves a, Halves b, int64_t j) HWY_ATTR {
        hn::StoreU(Halves{_mm512_permutex2var_epi16(a.raw, lower.raw, b.raw)}, d, to + 2 * j);
        return Halves{_mm512_permutex2var_epi16(a.raw, upper.raw, b.raw)};
      };
      int64_t j = 0;
      for (; odd != nullptr && j + 32 <= width; j += 32) {
        hn::StoreU(put(hn::LoadU(d, even + j), hn::LoadU(d, odd + j), j), d, to + 2 * j + 32);
      }
      for (; j < width; j += 32) {
        const auto mask = hn::FirstN(d, static_cast<size_t>(std::min<int64_t>(32, width - j)));
        const Halves b = odd != nullptr ? hn::MaskedLoad(mask, d, odd + j) : hn::Zero(d);
        const Halves rest = put(hn::MaskedLoad(mask, d, even + j), b, j);
        if (j + 16 < width) hn::StoreU(rest, d, to + 2 * j + 32);
      }
    }
  }
};

// Computes tile `tile` of C, and prefetches one line of the rows.
template <typename Format, int kTileRows, int kVectors>
HWY_INLINE void run_tile(const PanelProduct& p, int64_t row, int64_t tile) {
  const Tag d;
  Vec sum[kTileRows][kVectors];
#pragma GCC unroll 8
  for (int m = 0; m < kTileRows; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[m][v] = hn::Zero(d);
  }
  const float* left = p.left + row;
  const float* right = p.right;
  const bool second = tile >= p.prefetch[0].lines;
  const PanelPrefetch& prefetch = p.prefetch[second];
  const int64_t line = tile - (second ? p.prefetch[0].lines : 0);
  const auto step = [&] HWY_ATTR {
    Vec b[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) b[v] = hn::LoadU(d, right + v * kLanes);
#pragma GCC unroll 8
    for (int m = 0; m < kTileRows; ++m) {
      const Vec a = hn::Set(d, left[m]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[m][v] = Format::multiply_add(a, b[v], sum[m][v]);
    }
    left += p.left_stride;
    right += p.right_stride;
  };
  if (line < prefetch.lines) {
    const void* const* fetch = prefetch.rows;
    const int64_t fetch_at = prefetch.first + 64 * line;
    for (int64_t k = 0; k < p.steps; ++k) {
      for (int64_t i = 0; i < Format::kStep; ++i) {
        __builtin_prefetch(static_cast<const char*>(*fetch++) + fetch_at, 0, 2);
      }
      step();
    }
  } else {
    for (int64_t k = 0; k < p.steps; ++k) step();
  }
#pragma GCC unroll 8
  for (int m = 0; m < kTileRows; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      float* to = p.c + (row + m) * p.ldc + v * kLanes;
      hn::StoreU(p.add ? hn::Add(sum[m][v], hn::LoadU(d, to)) : sum[m][v], d, to);
    }
  }
}

template <typename Format, int kVectors>
void run_tiles(const PanelProduct& p) {
  int64_t row = 0, tile = 0;
  for (; row + kRows <= p.rows; row += kRows) run_tile<Format, kRows, kVectors>(p, row, tile++);
  if (row == p.rows) return;
  with_constant<kRows - 1>(
      p.rows - row, [&](auto rows) HWY_ATTR { run_tile<Format, rows, kVectors>(p, row, tile); });
}

template <typename Format>
void multiply(const PanelProduct& p) {
  with_constant<4>(p.columns / kLanes,
                   [&](auto vectors) HWY_ATTR { run_tiles<Format, vectors>(p); });
}

template <typename Format>
constexpr PanelFunctions kFunctions{Format::kStep, Format::pack, multiply<Format>};

const PanelFunctions* choose(DType dtype) {
  if (dtype == DType::f32) return &kFunctions<InF32>;
  if (dtype == DType::bf16 && has_fast_bf16_dot()) return &kFunctions<InBf16>;
  return nullptr;
}
#else
const PanelFunctions* choose(DType) {
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

const PanelFunctions* panel_functions(DType dtype) {
  return HWY_DYNAMIC_DISPATCH(choose)(dtype);
}

}  // namespace dltrain
#endif
