// The arithmetic of element-wise ops, element by element, for host and device code. The vectorised
// kernels compute the same formulas; lib/ops/elementwise.cpp says what each op means.
//
// elementwise<op>(a, b, p, q) is one step: unary ops ignore b; p and q are the op's numbers in the
// order of lib/ops/elementwise.h (affine: scale, shift). T is float or double.
#pragma once

#include <cmath>
#include <cstdint>
#if !defined(__CUDACC_RTC__)  // not needed by programs compiled at run time
#include <optional>
#include <string_view>
#endif

#include "base/host_device.h"
#include "ops/elementwise_list.h"

namespace dltrain {

#define DLTRAIN_NAME(name, ...) name,
#define DLTRAIN_BACKWARD(name, ...) name##_backward,
enum class ElementwiseOp : uint8_t {
  DLTRAIN_ACTIVATIONS(DLTRAIN_NAME) DLTRAIN_FUNCTIONS(DLTRAIN_NAME)
      DLTRAIN_ACTIVATIONS(DLTRAIN_BACKWARD) DLTRAIN_BINARIES(DLTRAIN_NAME)
};
#undef DLTRAIN_NAME
#undef DLTRAIN_BACKWARD

#if !defined(__CUDACC_RTC__)
#define DLTRAIN_NAME(name, ...) #name,
#define DLTRAIN_BACKWARD(name, ...) (#name "_backward"),
inline constexpr std::string_view kElementwiseNames[] = {
    DLTRAIN_ACTIVATIONS(DLTRAIN_NAME) DLTRAIN_FUNCTIONS(DLTRAIN_NAME)
        DLTRAIN_ACTIVATIONS(DLTRAIN_BACKWARD) DLTRAIN_BINARIES(DLTRAIN_NAME)};
#undef DLTRAIN_NAME
#undef DLTRAIN_BACKWARD
inline constexpr int kElementwiseCount = sizeof(kElementwiseNames) / sizeof(kElementwiseNames[0]);

// Returns nullopt if `name` is not an element-wise op ("cast" has its own kernel).
constexpr std::optional<ElementwiseOp> elementwise_op(std::string_view name) {
  for (int i = 0; i < kElementwiseCount; ++i) {
    if (kElementwiseNames[i] == name) return static_cast<ElementwiseOp>(i);
  }
  return {};
}

// Returns the activation of a matmul or conv2d: "" is the identity. Throws
// std::bad_optional_access for an unknown name.
constexpr ElementwiseOp activation_of(std::string_view name) {
  return name.empty() ? ElementwiseOp::identity : elementwise_op(name).value();
}
#endif

// Returns the number of operands, 1 or 2.
constexpr int elementwise_operands(ElementwiseOp op) {
  return op < ElementwiseOp::relu_backward ? 1 : 2;
}

// √(2/π) and the cubic coefficient of the tanh form of GELU (Hendrycks & Gimpel 2016).
inline constexpr double kGeluTanhScale = 0.79788456080286535588;
inline constexpr double kGeluTanhCubic = 0.044715;
inline constexpr double kQuickGeluScale = 1.702;
// Klambauer et al. 2017: mean 0 and variance 1 are a fixed point.
inline constexpr double kSeluScale = 1.0507009873554804934193349852946;
inline constexpr double kSeluAlpha = 1.6732632423543772848170429916717;

template <typename T>
DLTRAIN_HD T sigmoid_of(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

// Φ(x), the normal distribution function.
template <typename T>
DLTRAIN_HD T normal_cdf(T x) {
  return T(0.5) * std::erfc(x * T(-0.70710678118654752440));  // exact in the lower tail too
}

#if defined(__CUDACC__) || defined(DLTRAIN_CUDA_EMULATION)
// For GPUs in f32, where erfcf takes longer than the memory traffic of GELU: a polynomial in
// 1 / (1 + 0.33·z) for erfc(z)·exp(z²), fitted to a relative error of 8e-8; the result is within
// 3e-7 of Φ.
DLTRAIN_HD float normal_cdf(float x) {
  const float y = 1.0f + 0.33f * 0.70710678f * std::abs(x);
#if defined(__CUDA_ARCH__)
  const float t = __fdividef(1.0f, y);
#else
  const float t = 1.0f / y;
#endif
  float sum = -0.13592888f;
  sum = sum * t + 0.46268855f;
  sum = sum * t - 0.35543943f;
  sum = sum * t + 0.41254195f;
  sum = sum * t + 0.04501055f;
  sum = sum * t + 0.20192381f;
  sum = sum * t + 0.18283725f;
  sum = sum * t + 0.18636611f;
  const float tail = 0.5f * sum * t * std::exp(-0.5f * x * x);
  return x < 0.0f ? tail : 1.0f - tail;  // NaN stays NaN
}
#endif

template <typename T>
DLTRAIN_HD T gelu_tanh_argument(T x) {
  return T(kGeluTanhScale) * (x + T(kGeluTanhCubic) * x * x * x);
}

// ln(1 + exp(x)); the exponential never overflows.
template <typename T>
DLTRAIN_HD T softplus_of(T x) {
  return (x > T(0) ? x : T(0)) + std::log1p(std::exp(x > T(0) ? -x : x));
}

// Clamps to [low, high]; NaN stays NaN.
template <typename T>
DLTRAIN_HD T clamp_of(T x, T low, T high) {
  return x < low ? low : x > high ? high : x;
}

template <ElementwiseOp op, typename T>
DLTRAIN_HD T elementwise(T a, [[maybe_unused]] T b, [[maybe_unused]] T p, [[maybe_unused]] T q) {
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
  if constexpr (op == affine) return a * p + q;
  if constexpr (op == identity) return a;
  if constexpr (op == leaky_relu) return a > T(0) ? a : a * p;
  if constexpr (op == elu) return a > T(0) ? a : p * std::expm1(a);
  if constexpr (op == selu) {
    return T(kSeluScale) * (a > T(0) ? a : T(kSeluAlpha) * std::expm1(a));
  }
  if constexpr (op == softplus) return a * p > q ? a : softplus_of(a * p) / p;
  if constexpr (op == mish) return a * std::tanh(softplus_of(a));
  if constexpr (op == hardswish) return a * clamp_of(a + T(3), T(0), T(6)) / T(6);
  if constexpr (op == hardsigmoid) return clamp_of(a + T(3), T(0), T(6)) / T(6);
  if constexpr (op == hardtanh) return clamp_of(a, p, q);
  if constexpr (op == softsign) return a / (T(1) + std::abs(a));
  if constexpr (op == quick_gelu) return a * sigmoid_of(T(kQuickGeluScale) * a);
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
  if constexpr (op == leaky_relu_backward) return a > T(0) ? b : b * p;
  if constexpr (op == elu_backward) return a > T(0) ? b : b * (a + p);
  if constexpr (op == selu_backward) {
    return b * (a > T(0) ? T(kSeluScale) : a + T(kSeluScale * kSeluAlpha));
  }
  if constexpr (op == softplus_backward) return a * p > q ? b : b * sigmoid_of(a * p);
  if constexpr (op == mish_backward) {
    const T t = std::tanh(softplus_of(a));
    return b * (t + a * sigmoid_of(a) * (T(1) - t * t));
  }
  if constexpr (op == hardswish_backward) {
    return b * (a <= T(-3) ? T(0) : a >= T(3) ? T(1) : a / T(3) + T(0.5));
  }
  if constexpr (op == hardsigmoid_backward) return a > T(0) && a < T(1) ? b / T(6) : T(0);
  if constexpr (op == hardtanh_backward) return a > p && a < q ? b : T(0);
  if constexpr (op == softsign_backward) {
    const T size = T(1) + std::abs(a);
    return b / (size * size);
  }
  if constexpr (op == quick_gelu_backward) {
    const T s = sigmoid_of(T(kQuickGeluScale) * a);
    return b * (s + T(kQuickGeluScale) * a * s * (T(1) - s));
  }
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
#define DLTRAIN_CASE(name, ...) \
  case name:                    \
    return f.template operator()<name>();
#define DLTRAIN_CASE_BACKWARD(name, ...) DLTRAIN_CASE(name##_backward)
    DLTRAIN_ACTIVATIONS(DLTRAIN_CASE)
    DLTRAIN_ACTIVATIONS(DLTRAIN_CASE_BACKWARD)
    DLTRAIN_FUNCTIONS(DLTRAIN_CASE)
    DLTRAIN_BINARIES(DLTRAIN_CASE)
#undef DLTRAIN_CASE
#undef DLTRAIN_CASE_BACKWARD
  }
  return f.template operator()<identity>();
}

// The same with the op as a run-time value.
template <typename T>
DLTRAIN_HD T elementwise(ElementwiseOp op, T a, T b, T p, T q) {
  return dispatch_elementwise(
      op, [&]<ElementwiseOp fixed>() { return elementwise<fixed, T>(a, b, p, q); });
}

}  // namespace dltrain
