// The loop of kernels that are generated for one program of element-wise steps
// (cuda/fused_source.h). Compiled by NVRTC, and by the tests' C++ compiler over the emulation.
#pragma once

#include "cuda/elements.cuh"
#include "cuda/fused_operands.h"
#include "shared/elementwise.h"

namespace dltrain {

// Every operand is read before the result is written: they may share memory.
template <typename Program, int N>
__device__ void fused_elements(const FusedOperands& operands, int64_t at) {
  using M = typename Program::M;
  M in[Program::kInputs][N], out[N];
  Program::template load<N>(operands, at, in);
  DLTRAIN_UNROLL
  for (int j = 0; j < N; ++j) {
    M values[Program::kInputs];
    for (int k = 0; k < Program::kInputs; ++k) values[k] = in[k][j];
    out[j] = Program::run(values);
  }
  store_elements<typename Program::Result, N>(out, operands.output, at);
}

// Program: M, in which it computes; Result, of the output; kInputs; kPack elements that a thread
// takes at once; load of N elements, and run(in) of one. `packs` whole packs first (0 when an
// operand is not aligned), then the rest one by one.
template <typename Program>
__device__ void fused_loop(const FusedOperands& operands, int64_t packs, int64_t count) {
  sweep_elements<Program::kPack>(
      packs, count, thread_index(), thread_count(),
      [&]<int N>(int64_t at) { fused_elements<Program, N>(operands, at); });
}

}  // namespace dltrain
