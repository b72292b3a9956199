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

// Four rows by kVectors vectors of c; four accumulators per vector hide the latency of additions.
template <typename Format, bool add, int kVectors>
HWY_INLINE void product_tile(const float* HWY_RESTRICT a, int64_t lda, const float* HWY_RESTRICT b,
                             int64_t ldb, float* HWY_RESTRICT c, int64_t ldc, int64_t inner) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto load = [&](int row, int column) HWY_ATTR {
    return add ? hn::LoadU(d, c + row * ldc + column * lanes) : hn::Zero(d);
  };
  constexpr int kLast = kVectors - 1;
  auto c00 = load(0, 0), c10 = load(1, 0), c20 = load(2, 0), c30 = load(3, 0);
  auto c01 = load(0, kLast), c11 = load(1, kLast), c21 = load(2, kLast), c31 = load(3, kLast);
  for (int64_t k = 0; k < inner; ++k) {
    const auto b0 = hn::LoadU(d, b + k * ldb);
    const auto a0 = hn::Set(d, a[k]), a1 = hn::Set(d, a[lda + k]);
    const auto a2 = hn::Set(d, a[2 * lda + k]), a3 = hn::Set(d, a[3 * lda + k]);
    c00 = Format::multiply_add(a0, b0, c00);
    c10 = Format::multiply_add(a1, b0, c10);
    c20 = Format::multiply_add(a2, b0, c20);
    c30 = Format::multiply_add(a3, b0, c30);
    if constexpr (kVectors == 2) {
      const auto b1 = hn::LoadU(d, b + k * ldb + lanes);
      c01 = Format::multiply_add(a0, b1, c01);
      c11 = Format::multiply_add(a1, b1, c11);
      c21 = Format::multiply_add(a2, b1, c21);
      c31 = Format::multiply_add(a3, b1, c31);
    }
  }
  hn::StoreU(c00, d, c);
  hn::StoreU(c10, d, c + ldc);
  hn::StoreU(c20, d, c + 2 * ldc);
  hn::StoreU(c30, d, c + 3 * ldc);
  if constexpr (kVectors == 2) {
    hn::StoreU(c01, d, c + lanes);
    hn::StoreU(c11, d, c + ldc + lanes);
    hn::StoreU(c21, d, c + 2 * ldc + lanes);
    hn::StoreU(c31, d, c + 3 * ldc + lanes);
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
  for (; j + 2 * lanes <= columns; j += 2 * lanes) tiles(std::integral_constant<int, 2>(), j);
  for (; j < columns; j += lanes) tiles(std::integral_constant<int, 1>(), j);
}
#pragma GCC diagnostic pop

}  // namespace dltrain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
