// Shared by the kernels of this folder: the check of dtypes and small helpers.
#pragma once

#include <algorithm>
#include <type_traits>

#include "ops/kernel.h"

namespace dltrain {

// Returns true when every floating input and output is f32 (the engine computes in f32 only).
inline bool computes_in_f32(const KernelRequest& request) {
  const auto fits = [](const TensorSpec& spec) {
    return !is_floating(spec.dtype) || spec.dtype == DType::f32;
  };
  return std::ranges::all_of(request.inputs, fits) && std::ranges::all_of(request.outputs, fits);
}

// Calls f with an unsigned integer of the size of an element.
template <typename F>
auto with_word(DType dtype, const F& f) {
  switch (dtype_size(dtype)) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    default:
      return f(uint64_t{});
  }
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

// A part of a loss, and the number of correct predictions in it.
struct LossSums {
  double loss = 0, correct = 0;
  void operator+=(const LossSums& other) {
    loss += other.loss;
    correct += other.correct;
  }
};
// Adds up the sums of all chunks in order.
inline LossSums total_of(const LossSums* chunks, int64_t count) {
  LossSums total;
  for (int64_t c = 0; c < count; ++c) total += chunks[c];
  return total;
}

}  // namespace dltrain
