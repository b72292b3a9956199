// The 16-bit floating formats as elements of memory: conversions from and to f32, rounded to
// nearest, ties to even. NaN stays NaN, f32 values beyond the range of F16 become infinities.
// Arithmetic is done in f32; these types only store. Host and device code share this file.
#pragma once

#include <cstdint>

#include "base/host_device.h"

namespace dltrain {

// bfloat16: the upper half of an f32 (8 bits of exponent, 7 of fraction).
struct Bf16 {
  uint16_t bits;
};

// IEEE 754 binary16 (5 bits of exponent, 10 of fraction; greatest value 65504, least 2⁻²⁴).
struct F16 {
  uint16_t bits;
};

// std::bit_cast, which device code cannot call.
template <typename To, typename From>
DLTRAIN_HD To bits_as(From x) {
  return __builtin_bit_cast(To, x);
}

DLTRAIN_HD float to_f32(float x) {
  return x;
}
DLTRAIN_HD float to_f32(Bf16 x) {
  return bits_as<float>(uint32_t{x.bits} << 16);
}
DLTRAIN_HD float to_f32(F16 x) {
  // The shifted bits have an exponent that is 112 too small; a multiplication corrects it, also for
  // subnormal values. Exponent 31 (infinities and NaN) becomes the greatest exponent.
  const uint32_t magnitude = (x.bits & 0x7FFFu) << 13, sign = (x.bits & 0x8000u) << 16;
  const float scaled = bits_as<float>(magnitude) * bits_as<float>(0x77800000u);  // 2¹¹²
  const uint32_t special = magnitude >= 0x0F800000u ? 0x7F800000u : 0u;
  return bits_as<float>(bits_as<uint32_t>(scaled) | special | sign);
}

DLTRAIN_HD void from_f32(float x, float& out) {
  out = x;
}
DLTRAIN_HD void from_f32(float x, Bf16& out) {
  const auto bits = bits_as<uint32_t>(x);
  const bool nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  const uint32_t rounded = bits + 0x7FFFu + ((bits >> 16) & 1);
  out.bits = static_cast<uint16_t>((nan ? bits | 0x400000u : rounded) >> 16);
}
DLTRAIN_HD void from_f32(float x, F16& out) {
  const auto bits = bits_as<uint32_t>(x);
  const uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7FFFFFFFu;
  uint32_t half;
  if (magnitude > 0x7F800000u) {
    half = 0x7E00u;  // NaN
  } else if (magnitude >= 0x477FF000u) {
    half = 0x7C00u;  // rounds beyond 65504
  } else if (magnitude < 0x38800000u) {
    // Below 2⁻¹⁴: adding a half makes the addition round at the last bit of a subnormal F16.
    const float sum = bits_as<float>(magnitude) + 0.5f;
    half = bits_as<uint32_t>(sum) - 0x3F000000u;
  } else {
    half = (magnitude + 0xC8000FFFu + ((magnitude >> 13) & 1)) >> 13;  // exponent − 112, rounded
  }
  out.bits = static_cast<uint16_t>(half | sign);
}

// The operand of a TF32 product: an f32 of whose fraction 10 bits remain, rounded to nearest, ties
// away from zero, as PTX's cvt.rna.tf32.f32 does. A tensor core that gets the f32 itself reads its
// upper 19 bits, which truncates: whether a library rounds first is its choice (docs/equality.md).
DLTRAIN_HD float to_tf32(float x) {
  const auto bits = bits_as<uint32_t>(x);
  const bool finite = (bits & 0x7F800000u) != 0x7F800000u;
  return bits_as<float>(finite ? (bits + 0x1000u) & 0xFFFFE000u : bits);
}

}  // namespace dltrain
