// The arithmetic of element-wise ops, element by element, for host and device code. The vectorised
// kernels compute the same formulas; lib/ops/elementwise.cpp says what each op means.
//
// elementwise<op>(a, b, scale, shift) is one step: unary ops ignore b, only affine reads scale and
// shift. T is float or double.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/host_device.h"

namespace dltrain {

enum class ElementwiseOp : uint8_t {
  relu,
  gelu,
  gelu_tanh,
  silu,
  tanh,
  sigmoid,
  exp,
  log,
  sqrt,
  square,
  affine,
  identity,
  relu_backward,  // (y, dy)
  gelu_backward,  // (x, dy)
  gelu_tanh_backward,
  silu_backward,
  tanh_backward,     // (y, dy)
  sigmoid_backward,  // (y, dy)
  add,
  sub,
  mul,
  div,
};

inline constexpr std::string_view kElementwiseNames[] = {"relu",
                                                         "gelu",
                                                         "gelu_tanh",
                                                         "silu",
                                                         "tanh",
                                                         "sigmoid",
                                                         "exp",
                                                         "log",
                                                         "sqrt",
                                                         "square",
                                                         "affine",
                                                         "identity",
                                                         "relu_backward",
                                                         "gelu_backward",
                                                         "gelu_tanh_backward",
                                                         "silu_backward",
                                                         "tanh_backward",
                                                         "sigmoid_backward",
                                                         "add",
                                                         "sub",
                                                         "mul",
                                                         "div"};
inline constexpr int kElementwiseCount = sizeof(kElementwiseNames) / sizeof(kElementwiseNames[0]);
static_assert(kElementwiseCount == static_cast<int>(ElementwiseOp::div) + 1);

// Nothing for a name that is no element-wise op ("cast" is a kernel of its own).
constexpr std::optional<ElementwiseOp> elementwise_op(std::string_view name) {
  for (int i = 0; i < kElementwiseCount; ++i) {
    if (kElementwiseNames[i] == name) return static_cast<ElementwiseOp>(i);
  }
  return {};
}

// Operands: 1 or 2.
constexpr int elementwise_operands(ElementwiseOp op) {
  return op < ElementwiseOp::relu_backward ? 1 : 2;
}

// √(2/π) and the cubic coefficient of the tanh form of GELU (Hendrycks & Gimpel 2016).
inline constexpr double kGeluTanhScale = 0.79788456080286535588;
inline constexpr double kGeluTanhCubic = 0.044715;

template <typename T>
DLTRAIN_HD T sigmoid_of(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

// Φ(x), the normal distribution function.
template <typename T>
DLTRAIN_HD T normal_cdf(T x) {
  return T(0.5) * std::erfc(x * T(-0.70710678118654752440));  // exact in the lower tail too
}

template <typename T>
DLTRAIN_HD T gelu_tanh_argument(T x) {
  return T(kGeluTanhScale) * (x + T(kGeluTanhCubic) * x * x * x);
}

template <ElementwiseOp op, typename T>
DLTRAIN_HD T elementwise(T a, [[maybe_unused]] T b, [[maybe_unused]] T scale,
                         [[maybe_unused]] T shift) {
  using enum ElementwiseOp;
  if constexpr (op == relu) return a < T(0) ? T(0) : a;  // NaN stays NaN
  if constexpr (op == gelu) return a * normal_cdf(a);
  if constexpr (op == gelu_tanh) {
    return T(0.5) * a * (T(1) + std::tanh(gelu_tanh_argument(a)));
  }
  if constexpr (op == silu) return a * sigmoid_of(a);
  if constexpr (op == tanh) return std::tanh(a);
  if constexpr (op == sigmoid) return sigmoid_of(a);
  if constexpr (op == exp) return std::exp(a);
  if constexpr (op == log) return std::log(a);
  if constexpr (op == sqrt) return std::sqrt(a);
  if constexpr (op == square) return a * a;
  if constexpr (op == affine) return a * scale + shift;
  if constexpr (op == identity) return a;
  if constexpr (op == relu_backward) return a > T(0) ? b : T(0);
  if constexpr (op == gelu_backward) {
    const T density = T(0.39894228040143267794) * std::exp(T(-0.5) * a * a);
    return b * (normal_cdf(a) + a * density);
  }
  if constexpr (op == gelu_tanh_backward) {
    const T t = std::tanh(gelu_tanh_argument(a));
    const T slope = T(kGeluTanhScale) * (T(1) + T(3 * kGeluTanhCubic) * a * a);
    return b * (T(0.5) * (T(1) + t) + T(0.5) * a * (T(1) - t * t) * slope);
  }
  if constexpr (op == silu_backward) {
    const T s = sigmoid_of(a);
    return b * (s * (T(1) + a * (T(1) - s)));
  }
  if constexpr (op == tanh_backward) return b * (T(1) - a * a);
  if constexpr (op == sigmoid_backward) return b * (a * (T(1) - a));
  if constexpr (op == add) return a + b;
  if constexpr (op == sub) return a - b;
  if constexpr (op == mul) return a * b;
  if constexpr (op == div) return a / b;
}

// Calls f.template operator()<op>() with the op as a template argument.
template <typename F>
DLTRAIN_HD auto dispatch_elementwise(ElementwiseOp op, F&& f) {
  using enum ElementwiseOp;
  switch (op) {
#define DLTRAIN_CASE(name) \
  case name:               \
    return f.template operator()<name>();
    DLTRAIN_CASE(relu)
    DLTRAIN_CASE(gelu)
    DLTRAIN_CASE(gelu_tanh)
    DLTRAIN_CASE(silu)
    DLTRAIN_CASE(tanh)
    DLTRAIN_CASE(sigmoid)
    DLTRAIN_CASE(exp)
    DLTRAIN_CASE(log)
    DLTRAIN_CASE(sqrt)
    DLTRAIN_CASE(square)
    DLTRAIN_CASE(affine)
    DLTRAIN_CASE(relu_backward)
    DLTRAIN_CASE(gelu_backward)
    DLTRAIN_CASE(gelu_tanh_backward)
    DLTRAIN_CASE(silu_backward)
    DLTRAIN_CASE(tanh_backward)
    DLTRAIN_CASE(sigmoid_backward)
    DLTRAIN_CASE(add)
    DLTRAIN_CASE(sub)
    DLTRAIN_CASE(mul)
    DLTRAIN_CASE(div)
#undef DLTRAIN_CASE
    default:
      return f.template operator()<identity>();
  }
}

// The same by a run-time op: for the reference and for code generators' tests.
template <typename T>
DLTRAIN_HD T elementwise(ElementwiseOp op, T a, T b, T scale, T shift) {
  return dispatch_elementwise(
      op, [&]<ElementwiseOp fixed>() { return elementwise<fixed, T>(a, b, scale, shift); });
}

}  // namespace dltrain
