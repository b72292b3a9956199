// Converts rows of f32, bf16 and f16 elements to and from f32, in the calling thread.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"
#include "tensor/low_precision.h"

namespace dltrain {

// `from` and `to` do not overlap.
using WidenFunction = void (*)(const void* from, float* to, int64_t count);
using NarrowFunction = void (*)(const float* from, void* to, int64_t count);

// Return nullptr for a dtype other than f32, bf16 and f16.
WidenFunction widen_function(DType from);
NarrowFunction narrow_function(DType to);

// y = x as the operand of a TF32 product, by all threads; y may be x.
void round_to_tf32(const float* x, float* y, int64_t count);

// Returns f called with a value of the element type (float, Bf16, F16), or {} for another dtype.
template <typename F>
auto with_element_type(DType dtype, const F& f) -> decltype(f(float{})) {
  switch (dtype) {
    case DType::f32:
      return f(float{});
    case DType::bf16:
      return f(Bf16{});
    case DType::f16:
      return f(F16{});
    default:
      return decltype(f(float{}))();
  }
}

}  // namespace dltrain
