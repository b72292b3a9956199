// Register tiles for products whose left factor is broadcast element by element and whose right
// factor is read in vectors: C[m][lane] += Σ_k a[m][k]·b[k][lane]. Included once per instruction
// set.
//
// A tile has up to kTileRows rows and kTileVectors vectors, so that its sums fill most of the
// registers: every loaded value is used several times, which keeps the FMA units busy.
#if defined(DLTRAIN_CPU_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DLTRAIN_CPU_TILE_INL_H_
#undef DLTRAIN_CPU_TILE_INL_H_
#else
#define DLTRAIN_CPU_TILE_INL_H_
#endif

#include <cstdint>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "cpu/avx512.h"

HWY_BEFORE_NAMESPACE();
namespace dltrain::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using TileTag = hn::ScalableTag<float>;
using TileVec = hn::Vec<TileTag>;

constexpr int kTileRows = 6;
// Sums use 24 of 32 registers with AVX-512, 12 of 16 without.
constexpr int kTileVectors = DLTRAIN_AVX512() ? 4 : 2;

HWY_INLINE int64_t tile_lanes() {
  return static_cast<int64_t>(hn::Lanes(TileTag()));
}
// Returns the floats in a row of a full tile.
HWY_INLINE int64_t tile_width() {
  return kTileVectors * tile_lanes();
}

// One run of k: a[m·am + k·ak], b[k·bk + lane].
struct TileSegment {
  const float* a;
  const float* b;
  int64_t k;
};

// Start value and output of a tile. Row m of C is c + m·ldc.
struct TileOutput {
  const float* bias;  // initial value of the sums, one per row; nullptr: 0
  float* c;
  int64_t ldc;
  bool relu;
};

template <int kRows>
HWY_INLINE void run_tile(const TileSegment* segments, int count, int64_t am, int64_t ak, int64_t bk,
                         const TileOutput& out) {
  const TileTag d;
  const int64_t lanes = tile_lanes();
  TileVec sum[kRows][kTileVectors];
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
    const TileVec start = out.bias != nullptr ? hn::Set(d, out.bias[m]) : hn::Zero(d);
#pragma GCC unroll 8
    for (int v = 0; v < kTileVectors; ++v) sum[m][v] = start;
  }
  for (int s = 0; s < count; ++s) {
    const float* a = segments[s].a;
    const float* b = segments[s].b;
    for (int64_t k = segments[s].k; k > 0; --k) {
      TileVec right[kTileVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kTileVectors; ++v) right[v] = hn::LoadU(d, b + v * lanes);
#pragma GCC unroll 8
      for (int m = 0; m < kRows; ++m) {
        const TileVec left = hn::Set(d, a[m * am]);
#pragma GCC unroll 8
        for (int v = 0; v < kTileVectors; ++v) sum[m][v] = hn::MulAdd(left, right[v], sum[m][v]);
      }
      a += ak;
      b += bk;
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 8
    for (int v = 0; v < kTileVectors; ++v) {
      float* to = out.c + m * out.ldc + v * lanes;
      TileVec y = sum[m][v];
      if (out.relu) y = hn::IfThenElse(hn::Lt(y, hn::Zero(d)), hn::Zero(d), y);
      hn::StoreU(y, d, to);
    }
  }
}

#if DLTRAIN_AVX512()
// to[c·to_stride + r] = from[r·from_stride + c] for 16 × 16 values.
HWY_INLINE void transpose_16x16(const float* from, int64_t from_stride, float* to,
                                int64_t to_stride) {
  const TileTag d;
  const hn::RepartitionToWide<TileTag> pairs;
  // part[g][j]: block b holds column 4b + j of rows 4g … 4g + 3.
  TileVec part[4][4];
#pragma GCC unroll 4
  for (int g = 0; g < 4; ++g) {
    const float* x = from + 4 * g * from_stride;
    const TileVec x0 = hn::LoadU(d, x), x1 = hn::LoadU(d, x + from_stride);
    const TileVec x2 = hn::LoadU(d, x + 2 * from_stride), x3 = hn::LoadU(d, x + 3 * from_stride);
    const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, x0, x1));
    const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, x2, x3));
    const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, x0, x1));
    const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, x2, x3));
    part[g][0] = hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23));
    part[g][1] = hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23));
    part[g][2] = hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23));
    part[g][3] = hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23));
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    // Even and odd blocks of rows 0 … 7 and 8 … 15.
    const TileVec even0 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(part[1][j]), part[0][j]);
    const TileVec odd0 = hn::OddEvenBlocks(part[1][j], hn::SwapAdjacentBlocks(part[0][j]));
    const TileVec even1 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(part[3][j]), part[2][j]);
    const TileVec odd1 = hn::OddEvenBlocks(part[3][j], hn::SwapAdjacentBlocks(part[2][j]));
    float* y = to + j * to_stride;
    hn::StoreU(hn::ConcatLowerLower(d, even1, even0), d, y);
    hn::StoreU(hn::ConcatLowerLower(d, odd1, odd0), d, y + 4 * to_stride);
    hn::StoreU(hn::ConcatUpperUpper(d, even1, even0), d, y + 8 * to_stride);
    hn::StoreU(hn::ConcatUpperUpper(d, odd1, odd0), d, y + 12 * to_stride);
  }
}
#endif

// The same for 4 × 4 values.
HWY_INLINE void transpose_4x4(const float* from, int64_t from_stride, float* to,
                              int64_t to_stride) {
  const hn::FixedTag<float, 4> d;
  const hn::RepartitionToWide<decltype(d)> pairs;
  const auto x0 = hn::LoadU(d, from), x1 = hn::LoadU(d, from + from_stride);
  const auto x2 = hn::LoadU(d, from + 2 * from_stride), x3 = hn::LoadU(d, from + 3 * from_stride);
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, x0, x1));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, x2, x3));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, x0, x1));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, x2, x3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23)), d, to + to_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23)), d, to + 2 * to_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23)), d, to + 3 * to_stride);
}

// to[c·to_stride + r] = from[r·from_stride + c]
inline void transpose(const float* from, int64_t rows, int64_t columns, int64_t from_stride,
                      float* to, int64_t to_stride) {
  // Process strips of 16 columns, so that each cache line is read once.
  for (int64_t c = 0; c < columns; c += 16) {
    const int64_t width = columns - c < 16 ? columns - c : 16;
    int64_t r = 0;
#if DLTRAIN_AVX512()
    for (; width == 16 && r + 16 <= rows; r += 16) {
      // Distant rows defeat the hardware prefetcher: prefetch the next strip here.
      for (int64_t i = 0; i < 16; ++i) hwy::Prefetch(from + (r + i) * from_stride + c + 16);
      transpose_16x16(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
    }
#endif
    for (; r + 4 <= rows; r += 4) {
      int64_t i = 0;
      for (; i + 4 <= width; i += 4) {
        transpose_4x4(from + r * from_stride + c + i, from_stride, to + (c + i) * to_stride + r,
                      to_stride);
      }
      for (; i < width; ++i) {
        for (int64_t k = r; k < r + 4; ++k) {
          to[(c + i) * to_stride + k] = from[k * from_stride + c + i];
        }
      }
    }
    for (; r < rows; ++r) {
      for (int64_t i = c; i < c + width; ++i) to[i * to_stride + r] = from[r * from_stride + i];
    }
  }
}

}  // namespace
}  // namespace dltrain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
