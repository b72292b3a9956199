// Arithmetic of FP8 (lib/ops/fp8.cpp), for host and device code. Values are those of ml_dtypes'
// float8_e4m3fn and float8_e5m2, rounded to nearest, ties to even; larger ones become the largest.
#pragma once

#include <cstdint>
#include <vector>

#include "base/host_device.h"
#include "ops/kernel.h"
#include "tensor/low_precision.h"

namespace dltrain {

struct Fp8Format {
  int dropped;   // bits of the fraction of an f32
  int exponent;  // of the largest number, 1.75·2^exponent
  float largest;
  float least_normal;
  float rounder;  // added to a smaller number and subtracted, it leaves steps of 2^-9 or 2^-16
};
inline constexpr Fp8Format kE4M3{20, 8, 448, 0x1p-6f, 0x1p14f};
inline constexpr Fp8Format kE5M2{21, 15, 57344, 0x1p-14f, 0x1p7f};

inline Fp8Format fp8_format_of(const KernelRequest& request) {
  return request.attributes.text("format") == "e4m3" ? kE4M3 : kE5M2;
}

// Scales are powers of two, 2ⁿ, so that rounded values are exact in bf16. `counts` of an op has a
// place for each n: kFp8Bias + n.
inline constexpr int kFp8Counts = 256, kFp8Bias = 127, kFp8NotFinite = 255;

// Returns the place of the least n with amax ≤ largest·2ⁿ; 0 for amax = 0, kFp8NotFinite for one
// that is not finite. `bits`: of amax as f32, ≥ 0, which are ordered as the numbers are.
DLTRAIN_HD int fp8_place(uint32_t bits, const Fp8Format& format) {
  if (bits == 0) return 0;
  if (bits >= 0x7F800000u) return kFp8NotFinite;
  const int place = static_cast<int>((bits + 0x1FFFFFu) >> 23) - format.exponent;
  return place < 1 ? 1 : place;
}

// Returns 2ⁿ of a place: 1 for 0, NaN for kFp8NotFinite.
DLTRAIN_HD float fp8_scale(int place) {
  if (place == 0) return 1;
  if (place == kFp8NotFinite) return bits_as<float>(0x7FC00000u);
  return bits_as<float>(static_cast<uint32_t>(place) << 23);
}
// Returns 1 / fp8_scale(place), which is exact.
DLTRAIN_HD float fp8_inverse(int place) {
  if (place == 0 || place == kFp8NotFinite) return fp8_scale(place);
  return bits_as<float>(static_cast<uint32_t>(2 * kFp8Bias - place) << 23);
}

// Returns x/scale rounded to FP8, times scale; NaN for what is not finite.
DLTRAIN_HD float to_fp8(float x, float inverse, float scale, const Fp8Format& format) {
  const auto sign = bits_as<uint32_t>(x) & 0x80000000u;
  const float a = bits_as<float>(bits_as<uint32_t>(x) & 0x7FFFFFFFu) * inverse;
  const auto bits = bits_as<uint32_t>(a);
  const uint32_t half = (1u << (format.dropped - 1)) - 1 + ((bits >> format.dropped) & 1u);
  const float normal = bits_as<float>((bits + half) & ~((1u << format.dropped) - 1));
  float y = a < format.least_normal ? (a + format.rounder) - format.rounder : normal;
  y = y > format.largest ? format.largest : y;
  y = bits < 0x7F800000u ? y : bits_as<float>(0x7FC00000u);
  return bits_as<float>(bits_as<uint32_t>(y * scale) | sign);
}

// Returns the code of an FP8 number: sign, exponent (7 or 15 too large; 0: a subnormal number) and
// fraction. That of NaN is 0x7F.
DLTRAIN_HD uint8_t fp8_code(float y, const Fp8Format& format) {
  const auto bits = bits_as<uint32_t>(y), magnitude = bits & 0x7FFFFFFFu;
  const float a = bits_as<float>(magnitude);
  const auto least = bits_as<uint32_t>(format.least_normal);  // code 1 << fraction
  const int fraction = 23 - format.dropped;
  uint32_t code = ((magnitude - least) >> format.dropped) + (1u << fraction);
  if (a < format.least_normal) {
    code = static_cast<uint32_t>(a / format.least_normal * static_cast<float>(1 << fraction));
  }
  code |= bits >> 24 & 0x80u;
  return static_cast<uint8_t>(magnitude > 0x7F800000u ? 0x7F : code);
}

// The inverse. Other codes that are no finite numbers do not occur.
DLTRAIN_HD float fp8_value(uint8_t code, const Fp8Format& format) {
  const uint32_t magnitude = code & 0x7Fu;
  const int fraction = 23 - format.dropped;
  const auto least = bits_as<uint32_t>(format.least_normal);
  float a = bits_as<float>(((magnitude - (1u << fraction)) << format.dropped) + least);
  if (magnitude < (1u << fraction)) {
    a = static_cast<float>(magnitude) * format.least_normal / static_cast<float>(1 << fraction);
  }
  if (magnitude == 0x7Fu) a = bits_as<float>(0x7FC00000u);
  return bits_as<float>(bits_as<uint32_t>(a) | static_cast<uint32_t>(code & 0x80u) << 24);
}

// The layout of the scales of codes [rows, columns], of which each block [high, wide] has one
// (lib/ops/fp8.cpp). cuBLASLt reads this layout: on sm_90 for blocks [1, 128] and [128, 128], on
// sm_100 and newer for [1, 32], whose scales are in tiles of 128 x 4.
struct Fp8Scales {
  int64_t rows, columns, high = 0, wide = 0;  // wide = 0: all codes have one scale

  // Returns the place of the scale of a code.
  DLTRAIN_HD int64_t at(int64_t row, int64_t column) const {
    if (wide == 0) return 0;
    const int64_t k = column / wide, padded = ((columns + wide - 1) / wide + 3) / 4 * 4;
    if (wide == 32) {
      return row / 128 * 128 * padded + k / 4 * 512 + row % 32 * 16 + row % 128 / 32 * 4 + k % 4;
    }
    return high == 1 ? k * rows + row : row / high * padded + k;
  }
  DLTRAIN_HD bool in_bytes() const { return wide == 32; }  // as exponents
};
inline Fp8Scales fp8_scales(const Shape& codes, const std::vector<int64_t>& block) {
  const int64_t rows = codes.elements(0, codes.rank() - 1), columns = codes[-1];
  return block.empty() ? Fp8Scales{rows, columns} : Fp8Scales{rows, columns, block[0], block[1]};
}

// Returns whether x is larger than the largest number, and whether it became 0.
DLTRAIN_HD bool is_saturated(float x, float inverse, const Fp8Format& format) {
  return bits_as<float>(bits_as<uint32_t>(x) & 0x7FFFFFFFu) * inverse > format.largest;
}
DLTRAIN_HD bool is_underflow(float x, float y) {
  return y == 0 && x != 0;
}

}  // namespace dltrain
