#include "cpu/convert.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/convert.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dltrain {
namespace HWY_NAMESPACE {
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

WidenFunction choose_widen(DType from) {
  return with_element_type(from, []<typename T>(T) -> WidenFunction { return widen<T>; });
}
NarrowFunction choose_narrow(DType to) {
  return with_element_type(to, []<typename T>(T) -> NarrowFunction { return narrow<T>; });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dltrain
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
