// What launches have in common. The .cu files hold an op each: kernels and the makers that queue
// them. They include no header that needs fmt (nvcc cannot compile it as C++20); what has to is in
// a .cpp file beside them.
//
// What runs in a step queues on a stream, allocates nothing and waits for nothing. The same .cu
// files are compiled for the CPU emulation of tests/cuda_emulation.
#pragma once

#include <cstdint>

#include "base/host_device.h"

namespace dltrain {

using CudaStream = void*;  // cudaStream_t, as Stream::native() returns it

// Throws Error(device) naming the kernel when `code` (a cudaError_t) is not success.
void check_launch(int code, const char* kernel);

// Rows, columns, … of grids: ⌈a / b⌉ for a ≥ 0.
DLTRAIN_HD int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Blocks for a loop over `count` items with a grid stride: enough to fill the largest GPUs (132
// processors of 2048 threads), few enough that each thread has some work.
inline unsigned stride_grid(int64_t count, int block) {
  constexpr int64_t kMost = 132 * 16;
  const int64_t blocks = divide_up(count, block);
  return static_cast<unsigned>(blocks < kMost ? blocks : kMost);
}

}  // namespace dltrain
