#include "cpu/elementwise_steps.h"

#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/elementwise_steps.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/element-inl.h"
#include "cpu/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dltrain::HWY_NAMESPACE {
namespace {

// An operand: `fixed` is its value for the kind `one`.
template <OperandKind kind>
struct Operand {
  using Element = std::conditional_t<kind == OperandKind::bf16, Bf16, float>;
  explicit Operand(const void* from)
      : p(static_cast<const Element*>(from)),
        fixed(kind == OperandKind::one ? hn::Set(Floats(), scalar(0)) : hn::Zero(Floats())) {}

  HWY_INLINE FloatVec get(int64_t i) const {
    return kind == OperandKind::one ? fixed : load(p + i);
  }
  HWY_INLINE FloatVec get(int64_t i, size_t count) const {
    return kind == OperandKind::one ? fixed : load_n(p + i, count);
  }
  float scalar(int64_t i) const { return to_f32(p[kind == OperandKind::one ? 0 : i]); }

  const Element* p;
  FloatVec fixed;
};

template <ElementwiseOp op, OperandKind kind_a, OperandKind kind_b, bool accumulate>
void run_step(const StepOperands& s) {
  const Operand<kind_a> of_a(s.a);
  if constexpr (op == ElementwiseOp::log) {
    // Rare in training, so the C library's accuracy is preferred to speed.
    for (int64_t i = 0; i < s.count; ++i) {
      const float y = std::log(of_a.scalar(i));
      s.out[i] = accumulate ? s.out[i] + y : y;
    }
  } else {
    const Floats d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    const FloatVec p = hn::Set(d, s.p), q = hn::Set(d, s.q);
    constexpr bool unary = elementwise_operands(op) == 1;
    const Operand<unary ? kind_a : kind_b> of_b(unary ? s.a : s.b);
    const auto step = [&](FloatVec a, FloatVec b, FloatVec out) HWY_ATTR {
      const FloatVec y = elementwise_vec<op>(a, b, p, q);
      return accumulate ? hn::Add(out, y) : y;
    };
    int64_t i = 0;
    for (; i + lanes <= s.count; i += lanes) {
      const FloatVec a = of_a.get(i), b = unary ? a : of_b.get(i);
      hn::StoreU(step(a, b, accumulate ? hn::LoadU(d, s.out + i) : a), d, s.out + i);
    }
    if (i < s.count) {
      const size_t rest = static_cast<size_t>(s.count - i);
      const FloatVec a = of_a.get(i, rest), b = unary ? a : of_b.get(i, rest);
      const FloatVec y = step(a, b, accumulate ? load_n(s.out + i, rest) : a);
      store_n(y, s.out + i, rest);
    }
  }
}

template <ElementwiseOp op, OperandKind a, bool accumulate>
StepFunction choose_second(OperandKind b) {
  using enum OperandKind;
  if constexpr (elementwise_operands(op) == 1) {
    return run_step<op, a, a, accumulate>;
  } else {
    if (b == each) return run_step<op, a, each, accumulate>;
    if constexpr (a != bf16) {
      if (b == one) return run_step<op, a, one, accumulate>;
    }
    if constexpr (a != one && !accumulate) {
      if (b == bf16) return run_step<op, a, bf16, accumulate>;
    }
    return nullptr;
  }
}

template <ElementwiseOp op, bool accumulate>
StepFunction choose_kinds(OperandKind a, OperandKind b) {
  using enum OperandKind;
  if (a == each) return choose_second<op, each, accumulate>(b);
  if (a == one) return choose_second<op, one, accumulate>(b);
  if constexpr (!accumulate) return choose_second<op, bf16, accumulate>(b);
  return nullptr;
}

StepFunction choose(ElementwiseOp op, OperandKind a, OperandKind b, bool accumulate) {
  return dispatch_elementwise(op, [&]<ElementwiseOp fixed>() {
    return accumulate ? choose_kinds<fixed, true>(a, b) : choose_kinds<fixed, false>(a, b);
  });
}

}  // namespace
}  // namespace dltrain::HWY_NAMESPACE
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
