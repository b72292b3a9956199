// Products of small blocks that lie in cache, f32, for the instruction set that a Highway source
// file is being compiled for. Included once an instruction set, hence the unusual guard.
#if defined(DLTRAIN_CPU_BLOCK_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DLTRAIN_CPU_BLOCK_PRODUCT_INL_H_
#undef DLTRAIN_CPU_BLOCK_PRODUCT_INL_H_
#else
#define DLTRAIN_CPU_BLOCK_PRODUCT_INL_H_
#endif

#include <cstdint>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace dltrain {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Four rows by kVectors vectors of c; four accumulators a vector hide the latency of the additions.
template <bool add, int kVectors>
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
    c00 = hn::MulAdd(a0, b0, c00);
    c10 = hn::MulAdd(a1, b0, c10);
    c20 = hn::MulAdd(a2, b0, c20);
    c30 = hn::MulAdd(a3, b0, c30);
    if constexpr (kVectors == 2) {
      const auto b1 = hn::LoadU(d, b + k * ldb + lanes);
      c01 = hn::MulAdd(a0, b1, c01);
      c11 = hn::MulAdd(a1, b1, c11);
      c21 = hn::MulAdd(a2, b1, c21);
      c31 = hn::MulAdd(a3, b1, c31);
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

// c [rows, columns] = a [rows, inner] · b [inner, columns], added to c with `add`. Rows are a
// multiple of 4, columns of 16; the buffers are padded to that.
template <bool add>
HWY_INLINE void block_product(const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
                              int64_t ldc, int64_t rows, int64_t inner, int64_t columns) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  int64_t j = 0;
  for (; j + 2 * lanes <= columns; j += 2 * lanes) {
    for (int64_t i = 0; i < rows; i += 4) {
      product_tile<add, 2>(a + i * lda, lda, b + j, ldb, c + i * ldc + j, ldc, inner);
    }
  }
  for (; j < columns; j += lanes) {
    for (int64_t i = 0; i < rows; i += 4) {
      product_tile<add, 1>(a + i * lda, lda, b + j, ldb, c + i * ldc + j, ldc, inner);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace dltrain
HWY_AFTER_NAMESPACE();

#endif
