// Products of small blocks in cache, of f32 or of pairs of bf16 with f32 sums, for the instruction
// set that a Highway source file is being compiled for. Included once per instruction set, hence
// the unusual guard.
#if defined(DLTRAIN_CPU_BLOCK_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DLTRAIN_CPU_BLOCK_PRODUCT_INL_H_
#undef DLTRAIN_CPU_BLOCK_PRODUCT_INL_H_
#else
#define DLTRAIN_CPU_BLOCK_PRODUCT_INL_H_
#endif

#include <cstdint>
#include <type_traits>

#include <hwy/highway.h>

#include "cpu/avx512.h"

HWY_BEFORE_NAMESPACE();
namespace dltrain::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// sum + a·b, of f32.
struct F32Product {
  using Vec = hn::Vec<hn::ScalableTag<float>>;
  static constexpr int64_t kStep = 1;  // elements of a word
  static HWY_INLINE Vec multiply_add(Vec a, Vec b, Vec sum) { return hn::MulAdd(a, b, sum); }
};
#if DLTRAIN_AVX512()
// sum + a₀·b₀ + a₁·b₁, of words of two bf16 each; for processors with AVX512_BF16. This version of
// Highway has no such operation.
struct Bf16Product {
  using Vec = hn::Vec<hn::ScalableTag<float>>;
  static constexpr int64_t kStep = 2;
  static HWY_INLINE Vec multiply_add(Vec a, Vec b, Vec sum) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
    return sum;
  }
};
#endif

// Four rows by kVectors vectors of c: at least eight sums hide the latency of additions.
template <typename Format, bool add, int kVectors>
HWY_INLINE void product_tile(const float* HWY_RESTRICT a, int64_t lda, const float* HWY_RESTRICT b,
                             int64_t ldb, float* HWY_RESTRICT c, int64_t ldc, int64_t inner) {
  constexpr int kRows = 4;
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<decltype(d)> sum[kRows][kVectors];
#pragma GCC unroll 4
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      sum[m][v] = add ? hn::LoadU(d, c + m * ldc + v * lanes) : hn::Zero(d);
    }
  }
  for (int64_t k = 0; k < inner; ++k) {
    hn::Vec<decltype(d)> right[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) right[v] = hn::LoadU(d, b + k * ldb + v * lanes);
#pragma GCC unroll 4
    for (int m = 0; m < kRows; ++m) {
      const auto left = hn::Set(d, a[m * lda + k]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        sum[m][v] = Format::multiply_add(left, right[v], sum[m][v]);
      }
    }
  }
#pragma GCC unroll 4
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[m][v], d, c + m * ldc + v * lanes);
  }
}

// The half of a square block, including the diagonal, that is needed. For c: columns up to the row
// (`lower`), or from it on (`upper`); the content of the others is undefined. For the inner axis,
// in words of kStep columns of a, likewise; the other half of a is zero.
enum class Half : uint8_t { whole, lower_columns, upper_columns, lower_inner, upper_inner };

// With one lane g++ 12 wrongly warns of an infinite loop.
#pragma GCC diagnostic push
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Waggressive-loop-optimizations"
#endif
// c [rows, columns] = a [rows, inner] · b [inner, columns], added to c with `add`; `inner` counts
// words. Rows are a multiple of 4, columns of 16; buffers are padded.
template <typename Format, bool add>
HWY_INLINE void block_product(const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
                              int64_t ldc, int64_t rows, int64_t inner, int64_t columns,
                              Half half = Half::whole) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  const auto tiles = [&](auto vectors, int64_t j) HWY_ATTR {
    constexpr int kVectors = decltype(vectors)::value;
    for (int64_t i = 0; i < rows; i += 4) {
      if (half == Half::lower_columns && j > i + 3) continue;
      if (half == Half::upper_columns && j + kVectors * lanes <= i) continue;
      const int64_t first = half == Half::upper_inner ? i / Format::kStep : 0;
      const int64_t end =
          half == Half::lower_inner ? HWY_MIN(inner, (i + 3) / Format::kStep + 1) : inner;
      if (first >= end && add) continue;
      product_tile<Format, add, kVectors>(a + i * lda + first, lda, b + first * ldb + j, ldb,
                                          c + i * ldc + j, ldc, end - first);
    }
  };
  int64_t j = 0;
#if DLTRAIN_AVX512()
  // With 16 of 32 registers for sums; wider tiles would compute more of a half that is not needed.
  if (half != Half::lower_columns && half != Half::upper_columns) {
    for (; j + 4 * lanes <= columns; j += 4 * lanes) tiles(std::integral_constant<int, 4>(), j);
  }
#endif
  for (; j + 2 * lanes <= columns; j += 2 * lanes) tiles(std::integral_constant<int, 2>(), j);
  for (; j < columns; j += lanes) tiles(std::integral_constant<int, 1>(), j);
}
#pragma GCC diagnostic pop

}  // namespace dltrain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
