// Shared by the kernels of this folder: dtype checks and typed views of the bindings.
#pragma once

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

template <typename T>
T* input(const Bindings& bindings, size_t i) {
  return static_cast<T*>(bindings.inputs[i]);
}
template <typename T>
T* output(const Bindings& bindings, size_t i) {
  return static_cast<T*>(bindings.outputs[i]);
}

inline int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace dltrain
