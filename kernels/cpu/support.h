// Shared by the kernels of this folder: the check of dtypes and small helpers.
#pragma once

#include <type_traits>

#include "ops/kernel.h"

namespace dltrain {

// Returns true when every floating input and output is f32 (the engine computes in f32 only).
inline bool computes_in_f32(const KernelRequest& request) {
  for (const TensorSpec& spec : request.inputs) {
    if (is_floating(spec.dtype) && spec.dtype != DType::f32) return false;
  }
  for (const TensorSpec& spec : request.outputs) {
    if (is_floating(spec.dtype) && spec.dtype != DType::f32) return false;
  }
  return true;
}

// Calls f(std::integral_constant<int, n>()) for a run-time n in [1, most].
template <int most, typename F>
inline void with_constant(int64_t n, const F& f) {
  if constexpr (most > 1) {
    if (n < most) return with_constant<most - 1>(n, f);
  }
  f(std::integral_constant<int, most>());
}

inline int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace dltrain
