// Blocks of attention's operands in the layouts of its products, in f32 and in bf16. The inner axis
// of a product consists of 32-bit words: one f32, or two bf16 that VDPBF16PS multiplies at once.
// Sums are f32. Included once per instruction set.
#if defined(DLTRAIN_CPU_ATTENTION_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DLTRAIN_CPU_ATTENTION_BLOCKS_INL_H_
#undef DLTRAIN_CPU_ATTENTION_BLOCKS_INL_H_
#else
#define DLTRAIN_CPU_ATTENTION_BLOCKS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <hwy/highway.h>

#include "cpu/attention.h"
#include "cpu/block_product-inl.h"
#include "cpu/element-inl.h"
#include "cpu/tile-inl.h"
#include "tensor/low_precision.h"

HWY_BEFORE_NAMESPACE();
namespace dltrain::HWY_NAMESPACE {
namespace {

constexpr int64_t kBlock = kAttentionBlock;

// `from`: `count` ≤ kBlock vectors of `dim` elements, `stride` apart; the rest of a block is zero.
// `width`: padded_head(dim).
struct F32Blocks : F32Product {
  using Element = float;
  static constexpr bool kRounds = false;  // the operands

  // A left factor [kBlock, width / kStep]: words along the head.
  static void rows(const float* from, int64_t stride, int64_t count, int64_t dim, float* to,
                   int64_t width) {
    for (int64_t i = 0; i < count; ++i) {
      std::copy_n(from + i * stride, dim, to + i * width);
      std::fill(to + i * width + dim, to + (i + 1) * width, 0.0f);
    }
    std::fill(to + count * width, to + kBlock * width, 0.0f);
  }
  // A right factor [width / kStep, kBlock]: words along the head.
  static void transposed(const float* from, int64_t stride, int64_t count, int64_t dim, float* to,
                         int64_t) {
    if (count < kBlock) std::fill(to, to + dim * kBlock, 0.0f);
    transpose(from, count, dim, stride, to, kBlock);
  }
  // A right factor [kBlock / kStep, width]: words along the tokens.
  static void paired(const float* from, int64_t stride, int64_t count, int64_t dim, float* to,
                     int64_t width) {
    rows(from, stride, count, dim, to, width);
  }
  // A block of sums [rows, kBlock] as a left factor with words along the columns.
  static const float* left(const float* block, int64_t, float*) { return block; }
};

inline void round_floats(const float* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = to_tf32(from[i]);
}

// f32 whose products are those of TF32.
struct Tf32Blocks : F32Blocks {
  static constexpr bool kRounds = true;

  static void rows(const float* from, int64_t stride, int64_t count, int64_t dim, float* to,
                   int64_t width) {
    F32Blocks::rows(from, stride, count, dim, to, width);
    round_floats(to, kBlock * width, to);
  }
  static void transposed(const float* from, int64_t stride, int64_t count, int64_t dim, float* to,
                         int64_t width) {
    F32Blocks::transposed(from, stride, count, dim, to, width);
    round_floats(to, dim * kBlock, to);
  }
  static void paired(const float* from, int64_t stride, int64_t count, int64_t dim, float* to,
                     int64_t width) {
    rows(from, stride, count, dim, to, width);
  }
  static const float* left(const float* block, int64_t rows, float* to) {
    round_floats(block, rows * kBlock, to);
    return to;
  }
};

#if DLTRAIN_AVX512()
struct Bf16Blocks : Bf16Product {
  using Element = Bf16;
  static constexpr bool kRounds = true;

  static void rows(const Bf16* from, int64_t stride, int64_t count, int64_t dim, float* to,
                   int64_t width) {
    auto* out = reinterpret_cast<Bf16*>(to);
    for (int64_t i = 0; i < count; ++i) {
      std::copy_n(from + i * stride, dim, out + i * width);
      std::fill(out + i * width + dim, out + (i + 1) * width, Bf16{0});
    }
    std::fill(out + count * width, out + kBlock * width, Bf16{0});
  }
  static void transposed(const Bf16* from, int64_t stride, int64_t count, int64_t dim, float* to,
                         int64_t width) {
    if (count < kBlock || dim < width) std::fill(to, to + width / 2 * kBlock, 0.0f);
    if (dim % 2 == 0 && stride % 2 == 0) {
      transpose(reinterpret_cast<const float*>(from), count, dim / 2, stride / 2, to, kBlock);
      return;
    }
    auto* out = reinterpret_cast<Bf16*>(to);
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t k = 0; k < dim; ++k) {
        out[(k / 2 * kBlock + i) * 2 + k % 2] = from[i * stride + k];
      }
    }
  }
  static void paired(const Bf16* from, int64_t stride, int64_t count, int64_t dim, float* to,
                     int64_t width) {
    const BitsTag bits;
    const HalfTag half;
    const auto lanes = static_cast<int64_t>(hn::Lanes(bits));
    auto* out = reinterpret_cast<uint32_t*>(to);
    for (int64_t i = 0; i < kBlock; i += 2, out += width) {
      if (i >= count) {
        std::fill(out, out + width, 0u);
        continue;
      }
      const uint16_t* even = half_bits(from + i * stride);
      const uint16_t* odd = i + 1 < count ? half_bits(from + (i + 1) * stride) : nullptr;
      for (int64_t k = 0; k < width; k += lanes) {
        const auto in =
            hn::FirstN(half, static_cast<size_t>(std::clamp<int64_t>(dim - k, 0, lanes)));
        BitsVec word = hn::PromoteTo(bits, hn::MaskedLoad(in, half, even + k));
        if (odd != nullptr) {
          const BitsVec upper = hn::PromoteTo(bits, hn::MaskedLoad(in, half, odd + k));
          word = hn::Or(word, hn::ShiftLeft<16>(upper));
        }
        hn::StoreU(word, bits, out + k);
      }
    }
  }
  static const float* left(const float* block, int64_t rows, float* to) {
    const hn::ScalableTag<float> d;
    for (int64_t i = 0; i < rows * kBlock; i += 16) {
      auto narrow = hn::Zero(hn::Half<decltype(d)>());
      asm("vcvtneps2bf16 %1, %0" : "=v"(narrow.raw) : "v"(hn::LoadU(d, block + i).raw));
      hn::StoreU(narrow, hn::Half<decltype(d)>(), to + i / 2);
    }
    return to;
  }
};
#endif

// to = transpose of from, both [kBlock, kBlock].
inline void transpose_block(const float* from, float* to) {
#if DLTRAIN_AVX512()
  constexpr int64_t kSide = 16;
#else
  constexpr int64_t kSide = 4;
#endif
  for (int64_t r = 0; r < kBlock; r += kSide) {
    for (int64_t c = 0; c < kBlock; c += kSide) {
#if DLTRAIN_AVX512()
      transpose_16x16(from + r * kBlock + c, kBlock, to + c * kBlock + r, kBlock);
#else
      transpose_4x4(from + r * kBlock + c, kBlock, to + c * kBlock + r, kBlock);
#endif
    }
  }
}

// Stores `count` sums, times `factor`, as elements of the output.
template <typename Element>
HWY_INLINE void store_row(const float* from, int64_t count, float factor, Element* to) {
  const ElementTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto scale = hn::Set(d, factor);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) store(hn::Mul(load(from + i), scale), to + i);
  if (i < count) {
    const auto rest = static_cast<size_t>(count - i);
    store_n(hn::Mul(load_n(from + i, rest), scale), to + i, rest);
  }
}

}  // namespace
}  // namespace dltrain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
