#include "cpu/elementwise_steps.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/elementwise_steps.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dltrain {
namespace HWY_NAMESPACE {
namespace {

template <ElementwiseOp op, bool one_a, bool one_b, bool accumulate>
void run_step(const StepOperands& s) {
  if constexpr (op == ElementwiseOp::log) {
    // Rare in training, so the C library's exactness is worth more than speed.
    for (int64_t i = 0; i < s.count; ++i) {
      const float y = std::log(one_a ? *s.a : s.a[i]);
      s.out[i] = accumulate ? s.out[i] + y : y;
    }
  } else {
    const Floats d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    const FloatVec p = hn::Set(d, s.p), q = hn::Set(d, s.q);
    constexpr bool unary = elementwise_operands(op) == 1;
    const auto step = [&](FloatVec a, FloatVec b, FloatVec out) HWY_ATTR {
      const FloatVec y = elementwise_vec<op>(a, b, p, q);
      return accumulate ? hn::Add(out, y) : y;
    };
    const FloatVec fixed_a = hn::Set(d, *s.a), fixed_b = unary ? fixed_a : hn::Set(d, *s.b);
    int64_t i = 0;
    for (; i + lanes <= s.count; i += lanes) {
      const FloatVec a = one_a ? fixed_a : hn::LoadU(d, s.a + i);
      const FloatVec b = one_b || unary ? fixed_b : hn::LoadU(d, s.b + i);
      hn::StoreU(step(a, b, accumulate ? hn::LoadU(d, s.out + i) : a), d, s.out + i);
    }
    if (i < s.count) {
      const size_t rest = static_cast<size_t>(s.count - i);
      const auto mask = hn::FirstN(d, rest);
      const FloatVec a = one_a ? fixed_a : hn::MaskedLoad(mask, d, s.a + i);
      const FloatVec b = one_b || unary ? fixed_b : hn::MaskedLoad(mask, d, s.b + i);
      const FloatVec y = step(a, b, accumulate ? hn::MaskedLoad(mask, d, s.out + i) : a);
      hn::BlendedStore(y, mask, d, s.out + i);
    }
  }
}

template <ElementwiseOp op, bool accumulate>
StepFunction choose_kinds(OperandKind a, OperandKind b) {
  if constexpr (elementwise_operands(op) == 1) {
    return a == OperandKind::one ? run_step<op, true, false, accumulate>
                                 : run_step<op, false, false, accumulate>;
  } else {
    if (a == OperandKind::one) {
      return b == OperandKind::one ? run_step<op, true, true, accumulate>
                                   : run_step<op, true, false, accumulate>;
    }
    return b == OperandKind::one ? run_step<op, false, true, accumulate>
                                 : run_step<op, false, false, accumulate>;
  }
}

StepFunction choose(ElementwiseOp op, OperandKind a, OperandKind b, bool accumulate) {
  return dispatch_elementwise(op, [&]<ElementwiseOp fixed>() {
    return accumulate ? choose_kinds<fixed, true>(a, b) : choose_kinds<fixed, false>(a, b);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dltrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dltrain {
namespace {
HWY_EXPORT(choose);
}

StepFunction elementwise_step(ElementwiseOp op, OperandKind a, OperandKind b, bool accumulate) {
  return HWY_DYNAMIC_DISPATCH(choose)(op, a, b, accumulate);
}

}  // namespace dltrain
#endif
