#include "cpu/convert.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/convert.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dltrain::HWY_NAMESPACE {
namespace {

template <typename From, typename To>
void convert(const From* from, To* to, int64_t count) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(ElementTag()));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) store(load(from + i), to + i);
  if (i < count) {
    const auto rest = static_cast<size_t>(count - i);
    store_n(load_n(from + i, rest), to + i, rest);
  }
}

template <typename T>
void widen(const void* from, float* to, int64_t count) {
  convert(static_cast<const T*>(from), to, count);
}
template <typename T>
void narrow(const float* from, void* to, int64_t count) {
  convert(from, static_cast<T*>(to), count);
}

#if DLTRAIN_AVX512()
// Uses AVX512_BF16, 32 elements at a time. The instruction flushes subnormal numbers to 0, so
// groups with subnormals use the generic path.
void narrow_all_native(const float* from, void* to, int64_t count) {
  const ElementTag d;
  const BitsTag du;
  const auto* bits = reinterpret_cast<const uint32_t*>(from);
  const auto exponent = hn::Set(du, 0x7F800000u), fraction = hn::Set(du, 0x007FFFFFu);
  auto* out = static_cast<Bf16*>(to);
  const auto subnormal = [&](int64_t at) HWY_ATTR {
    const BitsVec v = hn::LoadU(du, bits + at);
    return hn::AndNot(hn::TestBit(v, exponent), hn::TestBit(v, fraction));
  };
  int64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    if (HWY_UNLIKELY(!hn::AllFalse(du, hn::Or(subnormal(i), subnormal(i + 16))))) {
      convert(from + i, out + i, 32);
      continue;
    }
    const auto both = narrow_native(hn::LoadU(d, from + i), hn::LoadU(d, from + i + 16));
    hn::StoreU(both, hn::ScalableTag<uint16_t>(), half_bits(out + i));
  }
  convert(from + i, out + i, count - i);
}
#endif

WidenFunction choose_widen(DType from) {
  return with_element_type(from, []<typename T>(T) -> WidenFunction { return widen<T>; });
}
NarrowFunction choose_narrow(DType to) {
#if DLTRAIN_AVX512()
  if (to == DType::bf16 && __builtin_cpu_supports("avx512bf16")) return narrow_all_native;
#endif
  return with_element_type(to, []<typename T>(T) -> NarrowFunction { return narrow<T>; });
}

}  // namespace
}  // namespace dltrain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dltrain {
namespace {
HWY_EXPORT(choose_widen);
HWY_EXPORT(choose_narrow);
}  // namespace

WidenFunction widen_function(DType from) {
  return HWY_DYNAMIC_DISPATCH(choose_widen)(from);
}
NarrowFunction narrow_function(DType to) {
  return HWY_DYNAMIC_DISPATCH(choose_narrow)(to);
}

}  // namespace dltrain
#endif
