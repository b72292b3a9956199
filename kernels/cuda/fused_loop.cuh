// The loop of kernels that are generated for one program of element-wise steps
// (cuda/fused_source.h). Compiled by NVRTC, and by the tests' C++ compiler over the emulation.
#pragma once

#include "cuda/elements.cuh"
#include "cuda/fused_operands.h"
#include "shared/elementwise.h"

namespace dltrain {

// Program: kInputs, kResults, and run(in, out) of one element in M. `packs` whole packs first (0
// when an operand is not aligned), then the rest one by one.
template <typename T, typename Program>
__device__ void fused_loop(const FusedOperands& operands, int64_t packs, int64_t count) {
  using M = MathOf<T>;
  constexpr int kWidth = Pack<T>::size;
  const int64_t loose = count - packs * kWidth;  // elements after the packs, one a loop step
  for (int64_t i = thread_index(); i < packs + loose; i += thread_count()) {
    const bool whole = i < packs;
    const int64_t at = whole ? i * kWidth : packs * kWidth + (i - packs);
    const int width = whole ? kWidth : 1;
    Pack<T> in[Program::kInputs], out[Program::kResults];
    for (int k = 0; k < Program::kInputs; ++k) {
      const T* from = static_cast<const T*>(operands.input[k]) + at;
      if (whole) {
        in[k] = *reinterpret_cast<const Pack<T>*>(from);
      } else {
        in[k].v[0] = from[0];
      }
    }
    for (int j = 0; j < width; ++j) {
      M values[Program::kInputs], results[Program::kResults];
      for (int k = 0; k < Program::kInputs; ++k) values[k] = static_cast<M>(in[k].v[j]);
      Program::run(values, results);
      for (int k = 0; k < Program::kResults; ++k) out[k].v[j] = static_cast<T>(results[k]);
    }
    for (int k = 0; k < Program::kResults; ++k) {
      T* to = static_cast<T*>(operands.output[k]) + at;
      if (whole) {
        *reinterpret_cast<Pack<T>*>(to) = out[k];
      } else {
        to[0] = out[k].v[0];
      }
    }
  }
}

}  // namespace dltrain
