// Arithmetic of elementwise_loss (lib/ops/elementwise_loss.cpp), shared by host and device code.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/host_device.h"

namespace dltrain {

enum class LossKind : uint8_t { mse, l1, huber, smooth_l1, binary_cross_entropy };

// `delta`: of huber and smooth_l1; `positive`: the pos_weight of the element.
template <LossKind kind, typename T>
DLTRAIN_HD T loss_value(T x, T t, T delta, T positive) {
  using enum LossKind;
  const T d = x - t, size = std::fabs(d);
  if constexpr (kind == mse) return d * d;
  if constexpr (kind == l1) return size;
  if constexpr (kind == huber) {
    return size <= delta ? T(0.5) * d * d : delta * (size - T(0.5) * delta);
  }
  if constexpr (kind == smooth_l1) {
    return size < delta ? T(0.5) * d * d / delta : size - T(0.5) * delta;
  }
  if constexpr (kind == binary_cross_entropy) {
    // softplus(−x), without overflow on either side
    const T softplus = std::fmax(-x, T(0)) + std::log1p(std::exp(-std::fabs(x)));
    return (T(1) - t) * x + (T(1) + (positive - T(1)) * t) * softplus;
  }
}

// Returns the derivative of loss_value by x.
template <LossKind kind, typename T>
DLTRAIN_HD T loss_slope(T x, T t, T delta, T positive) {
  using enum LossKind;
  const T d = x - t, size = std::fabs(d);
  const T sign = d > T(0) ? T(1) : d < T(0) ? T(-1) : T(0);
  if constexpr (kind == mse) return T(2) * d;
  if constexpr (kind == l1) return sign;
  if constexpr (kind == huber) return size <= delta ? d : delta * sign;
  if constexpr (kind == smooth_l1) return size < delta ? d / delta : sign;
  if constexpr (kind == binary_cross_entropy) {
    const T e = std::exp(-std::fabs(x));
    const T right = x >= T(0) ? T(1) / (T(1) + e) : e / (T(1) + e);  // σ(x)
    const T wrong = x >= T(0) ? e / (T(1) + e) : T(1) / (T(1) + e);  // 1 − σ(x)
    return (T(1) - t) * right - positive * t * wrong;
  }
}

}  // namespace dltrain
