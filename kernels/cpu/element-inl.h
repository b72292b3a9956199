// Elements of memory as f32 vectors: loads and stores of f32, bf16 and f16. Stores round to
// nearest, ties to even (tensor/low_precision.h has the scalar forms). Included once per
// instruction set.
#if defined(DLTRAIN_CPU_ELEMENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DLTRAIN_CPU_ELEMENT_INL_H_
#undef DLTRAIN_CPU_ELEMENT_INL_H_
#else
#define DLTRAIN_CPU_ELEMENT_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include <hwy/highway.h>

#include "cpu/avx512.h"
#include "tensor/low_precision.h"

HWY_BEFORE_NAMESPACE();
namespace dltrain::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using ElementTag = hn::ScalableTag<float>;
using ElementVec = hn::Vec<ElementTag>;
using BitsTag = hn::RebindToUnsigned<ElementTag>;
using BitsVec = hn::Vec<BitsTag>;
using HalfTag = hn::Rebind<uint16_t, ElementTag>;
using HalfVec = hn::Vec<HalfTag>;

HWY_INLINE ElementVec widen_bits(HalfVec half, Bf16) {
  return hn::BitCast(ElementTag(), hn::ShiftLeft<16>(hn::PromoteTo(BitsTag(), half)));
}
HWY_INLINE ElementVec widen_bits(HalfVec half, F16) {
  const ElementTag d;
  const BitsTag du;
  const hn::RebindToSigned<ElementTag> di;
  const BitsVec bits = hn::PromoteTo(du, half);
  const BitsVec magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(du, 0x7FFFu)));
  const BitsVec sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000u)));
  const ElementVec scale = hn::BitCast(d, hn::Set(du, 0x77800000u));
  const BitsVec scaled = hn::BitCast(du, hn::Mul(hn::BitCast(d, magnitude), scale));
  const auto special = hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, 0x0F7FFFFF));
  const auto infinity = hn::IfThenElseZero(special, hn::Set(di, 0x7F800000));
  return hn::BitCast(d, hn::Or(hn::Or(scaled, hn::BitCast(du, infinity)), sign));
}

HWY_INLINE HalfVec narrow_bits(ElementVec v, Bf16) {
  const BitsTag du;
  const BitsVec bits = hn::BitCast(du, v);
  const BitsVec odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const BitsVec rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7FFFu)), odd);
  const auto nan = hn::RebindMask(du, hn::IsNaN(v));
  const BitsVec chosen = hn::IfThenElse(nan, hn::Or(bits, hn::Set(du, 0x400000u)), rounded);
  return hn::TruncateTo(HalfTag(), hn::ShiftRight<16>(chosen));
}
#if DLTRAIN_AVX512()
// Converts both vectors to bf16 by AVX512_BF16, which flushes subnormal numbers to 0.
HWY_INLINE hn::Vec<hn::ScalableTag<uint16_t>> narrow_native(ElementVec low, ElementVec high) {
  hn::Vec<hn::ScalableTag<uint16_t>> both;
  asm("vcvtne2ps2bf16 %2, %1, %0" : "=v"(both.raw) : "v"(high.raw), "v"(low.raw));
  return both;
}
#endif
HWY_INLINE HalfVec narrow_bits(ElementVec v, F16) {
  const ElementTag d;
  const BitsTag du;
  const hn::RebindToSigned<ElementTag> di;
  const BitsVec bits = hn::BitCast(du, v);
  const BitsVec sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 0x8000u));
  const BitsVec magnitude = hn::And(bits, hn::Set(du, 0x7FFFFFFFu));
  const auto above = [&](int32_t limit) HWY_ATTR {
    return hn::RebindMask(du, hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, limit)));
  };
  const BitsVec odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
  const BitsVec normal =
      hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, hn::Set(du, 0xC8000FFFu)), odd));
  const ElementVec sum = hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5f));
  const BitsVec subnormal = hn::Sub(hn::BitCast(du, sum), hn::Set(du, 0x3F000000u));
  BitsVec half = hn::IfThenElse(above(0x387FFFFF), normal, subnormal);
  half = hn::IfThenElse(above(0x477FEFFF), hn::Set(du, 0x7C00u), half);
  half = hn::IfThenElse(above(0x7F800000), hn::Set(du, 0x7E00u), half);
  return hn::TruncateTo(HalfTag(), hn::Or(half, sign));
}

HWY_INLINE const uint16_t* half_bits(const void* p) {
  return static_cast<const uint16_t*>(p);
}
HWY_INLINE uint16_t* half_bits(void* p) {
  return static_cast<uint16_t*>(p);
}

// Loads and stores of full vectors.
HWY_INLINE ElementVec load(const float* p) {
  return hn::LoadU(ElementTag(), p);
}
template <typename T>
HWY_INLINE ElementVec load(const T* p) {
  return widen_bits(hn::LoadU(HalfTag(), half_bits(p)), T{});
}
HWY_INLINE void store(ElementVec v, float* p) {
  hn::StoreU(v, ElementTag(), p);
}
template <typename T>
HWY_INLINE void store(ElementVec v, T* p) {
  hn::StoreU(narrow_bits(v, T{}), HalfTag(), half_bits(p));
}

// The same for the first `count` lanes; others are zero, and memory beyond is not accessed.
HWY_INLINE ElementVec load_n(const float* p, size_t count) {
  return hn::MaskedLoad(hn::FirstN(ElementTag(), count), ElementTag(), p);
}
template <typename T>
HWY_INLINE ElementVec load_n(const T* p, size_t count) {
  const HalfTag dh;
#if DLTRAIN_AVX512()
  return widen_bits(hn::MaskedLoad(hn::FirstN(dh, count), dh, half_bits(p)), T{});
#else
  uint16_t part[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(part, p, count * sizeof(uint16_t));
  return widen_bits(hn::LoadU(dh, part), T{});
#endif
}
HWY_INLINE void store_n(ElementVec v, float* p, size_t count) {
  hn::BlendedStore(v, hn::FirstN(ElementTag(), count), ElementTag(), p);
}
template <typename T>
HWY_INLINE void store_n(ElementVec v, T* p, size_t count) {
  const HalfTag dh;
#if DLTRAIN_AVX512()
  hn::BlendedStore(narrow_bits(v, T{}), hn::FirstN(dh, count), dh, half_bits(p));
#else
  uint16_t part[HWY_MAX_BYTES / sizeof(float)];
  hn::StoreU(narrow_bits(v, T{}), dh, part);
  std::memcpy(p, part, count * sizeof(uint16_t));
#endif
}

// Calls f(offset, mask, n) along a row: n lanes, all except at the end.
template <typename F>
HWY_INLINE void along_row(int64_t count, const F& f) {
  const ElementTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < count; i += lanes) {
    const auto n = static_cast<size_t>(std::min(lanes, count - i));
    f(i, hn::FirstN(d, n), n);
  }
}

}  // namespace
}  // namespace dltrain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
