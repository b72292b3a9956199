// Common definitions of launches. Each .cu file contains an op: kernels and the makers that queue
// them. It must not include headers that need fmt (nvcc cannot compile it as C++20); such code is
// in .cpp files.
//
// Code that runs in a step only queues on a stream; it neither allocates nor waits. The same .cu
// files are compiled for the CPU emulation of tests/cuda_emulation.
#pragma once

#include <cstdint>

#include "base/host_device.h"

namespace dltrain {

using CudaStream = void*;  // cudaStream_t, as Stream::native() returns it

// Throws Error(device) naming the kernel when `code` (a cudaError_t) is not success.
void check_launch(int code, const char* kernel);

// Returns ⌈a / b⌉ for a ≥ 0, for example the size of a grid.
DLTRAIN_HD int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Returns the blocks for a grid-stride loop over `count` items: enough to fill the largest GPUs
// (132 multiprocessors of 2048 threads), few enough that each thread has some work.
inline unsigned stride_grid(int64_t count, int block) {
  constexpr int64_t kMax = 132 * 16;
  const int64_t blocks = divide_up(count, block);
  return static_cast<unsigned>(blocks < kMax ? blocks : kMax);
}

}  // namespace dltrain
