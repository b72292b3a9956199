// Device code that the kernels of fp8.cu and fp8_code_blocks.cu share.
#pragma once

#include "cuda/device_code.cuh"
#include "ops/kernel.h"
#include "shared/fp8.h"

namespace dltrain {

inline constexpr int kFp8Block = 256;

template <typename T>
__device__ uint32_t magnitude(T x) {
  return bits_as<uint32_t>(static_cast<float>(x)) & 0x7FFFFFFFu;
}

// Adds a block's lost elements to `lost`, whole numbers in double, whose order does not matter.
__device__ inline void add_lost(double saturated, double underflow, double* lost) {
  saturated = block_sum(saturated);
  underflow = block_sum(underflow);
  if (threadIdx.x != 0) return;
  if (saturated > 0) atomicAdd(lost, saturated);
  if (underflow > 0) atomicAdd(lost + 1, underflow);
}

// Makes shares of `count` elements of these numbers.
void launch_lost_shares(double* lost, int64_t count, CudaStream stream);

// fp8_codes with a scale for each block.
std::unique_ptr<Kernel> make_cuda_fp8_code_blocks(const KernelRequest& request);

}  // namespace dltrain
