// Vector counterparts of shared/elementwise.h in f32, for the instruction set that a Highway source
// file is being compiled for. Included once per instruction set, hence the unusual guard.
//
// The polynomials were fitted for this file in double (iterated weighted least squares,
// approximating the minimax error); tests/ops/simd_math.cpp lists the errors in f32. NaN gives NaN.
#if defined(DLTRAIN_CPU_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DLTRAIN_CPU_SIMD_MATH_INL_H_
#undef DLTRAIN_CPU_SIMD_MATH_INL_H_
#else
#define DLTRAIN_CPU_SIMD_MATH_INL_H_
#endif

#include <hwy/highway.h>

#include "shared/elementwise.h"

HWY_BEFORE_NAMESPACE();
namespace dltrain::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using FloatVec = hn::Vec<Floats>;

HWY_INLINE FloatVec constant(double value) {
  return hn::Set(Floats(), static_cast<float>(value));
}

// c0 + x(c1 + x(c2 + …))
template <typename V>
HWY_INLINE V polynomial(V, double c0) {
  return constant(c0);
}
template <typename V, typename... Rest>
HWY_INLINE V polynomial(V x, double c0, Rest... rest) {
  return hn::MulAdd(polynomial(x, rest...), x, constant(c0));
}

HWY_INLINE FloatVec exp_vec(FloatVec x) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  // Outside of these bounds the result is 0 or infinity; inside, two factors can represent the
  // exponent.
  const FloatVec bounded = hn::Min(hn::Max(x, constant(-104.0)), constant(89.0));
  const FloatVec n = hn::Round(hn::Mul(bounded, constant(1.44269504088896340736)));
  // ln 2 in two parts: the first has few enough bits that n times it is exact.
  FloatVec r = hn::NegMulAdd(n, constant(0.693359375), bounded);
  r = hn::NegMulAdd(n, constant(-2.12194440054690583e-4), r);
  const FloatVec p = polynomial(r, 4.999999344e-01, 1.666652048e-01, 4.166838990e-02,
                                8.368735773e-03, 1.381455767e-03);
  const FloatVec y = hn::Add(hn::MulAdd(hn::Mul(r, r), p, r), constant(1));
  const auto whole = hn::ConvertTo(di, n);
  const auto half = hn::ShiftRight<1>(whole);
  const auto bias = hn::Set(di, 127);
  const auto power1 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const auto power2 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(whole, half), bias)));
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Mul(hn::Mul(y, power1), power2));
}

HWY_INLINE FloatVec sigmoid_vec(FloatVec x) {
  return hn::Div(constant(1), hn::Add(constant(1), exp_vec(hn::Neg(x))));
}

HWY_INLINE FloatVec tanh_vec(FloatVec x) {
  const FloatVec magnitude = hn::Abs(x), square = hn::Mul(x, x);
  const FloatVec small = hn::MulAdd(hn::Mul(x, square),
                                    polynomial(square, -3.333326288e-01, 1.333089971e-01,
                                               -5.369296452e-02, 2.048330654e-02, -5.528624609e-03),
                                    x);
  const FloatVec e = exp_vec(hn::Add(magnitude, magnitude));
  const FloatVec large = hn::Sub(constant(1), hn::Div(constant(2), hn::Add(e, constant(1))));
  return hn::IfThenElse(hn::Lt(magnitude, constant(0.65)), small, hn::CopySign(large, x));
}

// exp(−x²/2), used for both Φ and the density.
HWY_INLINE FloatVec gauss_vec(FloatVec x) {
  return exp_vec(hn::Mul(hn::Mul(x, x), constant(-0.5)));
}

// Φ(x), given gauss_vec(x): Φ(−z) = gauss(z)·R(z) for z ≥ 0, with R fitted in 1/(1 + 0.3z).
HWY_INLINE FloatVec normal_cdf_vec(FloatVec x, FloatVec gauss) {
  const FloatVec t = hn::Div(constant(1), hn::MulAdd(hn::Abs(x), constant(0.3), constant(1)));
  const FloatVec ratio =
      hn::Mul(t, polynomial(t, 1.1968653718e-01, 1.1957462106e-01, 1.1021333512e-01,
                            7.8487452678e-02, 9.5887746424e-02, -7.8945335691e-02, 1.9123454453e-01,
                            -2.2781787596e-01, 1.1227366613e-01, -2.0594693184e-02));
  const FloatVec tail = hn::Mul(gauss, ratio);
  return hn::IfThenElse(hn::Lt(x, constant(0)), tail, hn::Sub(constant(1), tail));
}

// exp(x) − 1 without cancellation: near 0 by the polynomial of exp_vec.
HWY_INLINE FloatVec expm1_vec(FloatVec x) {
  const FloatVec p = polynomial(x, 4.999999344e-01, 1.666652048e-01, 4.166838990e-02,
                                8.368735773e-03, 1.381455767e-03);
  const FloatVec small = hn::MulAdd(hn::Mul(x, x), p, x);
  return hn::IfThenElse(hn::Lt(hn::Abs(x), constant(0.34)), small,
                        hn::Sub(exp_vec(x), constant(1)));
}

// ln(1 + exp(x)) = max(x, 0) + log1p(t) with t = exp(−|x|) and log1p(t) = 2 artanh(t / (2 + t)),
// whose argument is at most 1/3: the series ends at 1/15.
HWY_INLINE FloatVec softplus_vec(FloatVec x) {
  const FloatVec t = exp_vec(hn::Neg(hn::Abs(x)));
  const FloatVec s = hn::Div(t, hn::Add(t, constant(2))), square = hn::Mul(s, s);
  const FloatVec series =
      polynomial(square, 1.0, 1.0 / 3, 1.0 / 5, 1.0 / 7, 1.0 / 9, 1.0 / 11, 1.0 / 13, 1.0 / 15);
  const FloatVec zero = hn::Zero(Floats());
  const FloatVec above = hn::IfThenElse(hn::Lt(x, zero), zero, x);
  return hn::MulAdd(hn::Add(s, s), series, above);
}

// tanh(softplus(x)) = n / (n + 2) with n = e(e + 2) and e = exp(x); beyond 20 it is 1 in f32.
HWY_INLINE FloatVec tanh_softplus_vec(FloatVec x) {
  const FloatVec most = constant(20.0);
  const FloatVec e = exp_vec(hn::IfThenElse(hn::Gt(x, most), most, x));
  const FloatVec n = hn::Mul(e, hn::Add(e, constant(2)));
  return hn::Div(n, hn::Add(n, constant(2)));
}

// Clamps to [low, high]; NaN stays NaN.
HWY_INLINE FloatVec clamp_vec(FloatVec x, FloatVec low, FloatVec high) {
  return hn::IfThenElse(hn::Lt(x, low), low, hn::IfThenElse(hn::Gt(x, high), high, x));
}

HWY_INLINE FloatVec gelu_tanh_argument_vec(FloatVec x) {
  const FloatVec cubic = hn::Mul(hn::Mul(x, x), constant(kGeluTanhCubic));
  return hn::Mul(constant(kGeluTanhScale), hn::MulAdd(cubic, x, x));
}

// One element-wise step; the same meaning as elementwise<op>() of shared/elementwise.h.
template <ElementwiseOp op>
HWY_INLINE FloatVec elementwise_vec(FloatVec a, FloatVec b, FloatVec p, FloatVec q) {
  using enum ElementwiseOp;
  (void)b, (void)p, (void)q;
  const FloatVec zero = hn::Zero(Floats()), one = constant(1);
  if constexpr (op == relu) return hn::IfThenElse(hn::Lt(a, zero), zero, a);
  if constexpr (op == gelu) return hn::Mul(a, normal_cdf_vec(a, gauss_vec(a)));
  if constexpr (op == gelu_tanh) {  // ½(1 + tanh u) = sigmoid(2u)
    const FloatVec u = gelu_tanh_argument_vec(a);
    return hn::Mul(a, sigmoid_vec(hn::Add(u, u)));
  }
  if constexpr (op == silu) return hn::Mul(a, sigmoid_vec(a));
  if constexpr (op == ElementwiseOp::tanh) return tanh_vec(a);
  if constexpr (op == sigmoid) return sigmoid_vec(a);
  if constexpr (op == ElementwiseOp::exp) return exp_vec(a);
  if constexpr (op == ElementwiseOp::sqrt) return hn::Sqrt(a);
  if constexpr (op == square) return hn::Mul(a, a);
  if constexpr (op == affine) return hn::Add(hn::Mul(a, p), q);
  if constexpr (op == identity) return a;
  [[maybe_unused]] const auto positive = hn::Gt(a, zero);
  if constexpr (op == leaky_relu) return hn::IfThenElse(positive, a, hn::Mul(a, p));
  if constexpr (op == elu) return hn::IfThenElse(positive, a, hn::Mul(p, expm1_vec(a)));
  if constexpr (op == selu) {
    const FloatVec below = hn::Mul(constant(kSeluAlpha), expm1_vec(a));
    return hn::Mul(constant(kSeluScale), hn::IfThenElse(positive, a, below));
  }
  if constexpr (op == softplus) {
    const FloatVec x = hn::Mul(a, p);
    return hn::IfThenElse(hn::Gt(x, q), a, hn::Div(softplus_vec(x), p));
  }
  if constexpr (op == mish) return hn::Mul(a, tanh_softplus_vec(a));
  if constexpr (op == hardswish || op == hardsigmoid) {
    const FloatVec ramp = clamp_vec(hn::Add(a, constant(3)), zero, constant(6));
    const FloatVec y = hn::Mul(ramp, constant(1.0 / 6));
    return op == hardswish ? hn::Mul(a, y) : y;
  }
  if constexpr (op == hardtanh) return clamp_vec(a, p, q);
  if constexpr (op == softsign) return hn::Div(a, hn::Add(one, hn::Abs(a)));
  if constexpr (op == quick_gelu) {
    return hn::Mul(a, sigmoid_vec(hn::Mul(constant(kQuickGeluScale), a)));
  }
  if constexpr (op == relu_backward) return hn::IfThenElseZero(hn::Gt(a, zero), b);
  if constexpr (op == gelu_backward) {
    const FloatVec gauss = gauss_vec(a);
    const FloatVec density = hn::Mul(gauss, constant(0.39894228040143267794));
    return hn::Mul(b, hn::MulAdd(a, density, normal_cdf_vec(a, gauss)));
  }
  if constexpr (op == gelu_tanh_backward) {
    const FloatVec u = gelu_tanh_argument_vec(a), s = sigmoid_vec(hn::Add(u, u));
    const FloatVec slope = hn::Mul(constant(2 * kGeluTanhScale),
                                   hn::MulAdd(hn::Mul(a, a), constant(3 * kGeluTanhCubic), one));
    const FloatVec bell = hn::Mul(s, hn::Sub(one, s));
    return hn::Mul(b, hn::MulAdd(hn::Mul(a, bell), slope, s));
  }
  if constexpr (op == silu_backward) {
    const FloatVec s = sigmoid_vec(a);
    return hn::Mul(b, hn::Mul(s, hn::MulAdd(a, hn::Sub(one, s), one)));
  }
  if constexpr (op == tanh_backward) return hn::Mul(b, hn::NegMulAdd(a, a, one));
  if constexpr (op == sigmoid_backward) return hn::Mul(b, hn::Mul(a, hn::Sub(one, a)));
  if constexpr (op == leaky_relu_backward) {
    return hn::IfThenElse(positive, b, hn::Mul(b, p));
  }
  if constexpr (op == elu_backward) {
    return hn::IfThenElse(positive, b, hn::Mul(b, hn::Add(a, p)));
  }
  if constexpr (op == selu_backward) {
    const FloatVec below = hn::Add(a, constant(kSeluScale * kSeluAlpha));
    return hn::Mul(b, hn::IfThenElse(positive, constant(kSeluScale), below));
  }
  if constexpr (op == softplus_backward) {
    const FloatVec x = hn::Mul(a, p);
    return hn::IfThenElse(hn::Gt(x, q), b, hn::Mul(b, sigmoid_vec(x)));
  }
  if constexpr (op == mish_backward) {
    const FloatVec t = tanh_softplus_vec(a), slope = hn::NegMulAdd(t, t, one);
    return hn::Mul(b, hn::MulAdd(hn::Mul(a, sigmoid_vec(a)), slope, t));
  }
  if constexpr (op == hardswish_backward) {
    const FloatVec inner = hn::MulAdd(a, constant(1.0 / 3), constant(0.5));
    const FloatVec above = hn::IfThenElse(hn::Ge(a, constant(3)), one, inner);
    return hn::Mul(b, hn::IfThenElse(hn::Le(a, constant(-3)), zero, above));
  }
  if constexpr (op == hardsigmoid_backward) {
    return hn::IfThenElseZero(hn::And(positive, hn::Lt(a, one)), hn::Mul(b, constant(1.0 / 6)));
  }
  if constexpr (op == hardtanh_backward) {
    return hn::IfThenElseZero(hn::And(hn::Gt(a, p), hn::Lt(a, q)), b);
  }
  if constexpr (op == softsign_backward) {
    const FloatVec size = hn::Add(one, hn::Abs(a));
    return hn::Div(b, hn::Mul(size, size));
  }
  if constexpr (op == quick_gelu_backward) {
    const FloatVec x = hn::Mul(constant(kQuickGeluScale), a), s = sigmoid_vec(x);
    return hn::Mul(b, hn::Mul(s, hn::MulAdd(x, hn::Sub(one, s), one)));
  }
  if constexpr (op == add) return hn::Add(a, b);
  if constexpr (op == sub) return hn::Sub(a, b);
  if constexpr (op == mul) return hn::Mul(a, b);
  if constexpr (op == ElementwiseOp::div) return hn::Div(a, b);
}

}  // namespace dltrain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
