// Common device code of the .cu files: the launch macro, vector loads and reductions of a warp and
// a block. Included by .cu files only.
//
// Kernels that steps spend time in access 16 bytes at a time and leave room for 32 warps on a
// multiprocessor (64 registers), those of batch norm for 24 (80): tests/cuda_engine/sass.cpp.
//
// Under nvcc DLTRAIN_LAUNCH is <<<>>>; the emulation (tests/cuda_emulation, included by the build
// before all other code) defines its own, as well as __global__, __shared__, threadIdx and so on.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "base/philox.h"
#include "cuda/elements.cuh"
#include "cuda/launch.h"
#include "tensor/dtype.h"

#if !defined(DLTRAIN_CUDA_EMULATION)
#include <cuda_runtime.h>
// A kernel with commas in its template arguments must be in parentheses.
#define DLTRAIN_LAUNCH(kernel, grid, block, stream, ...) \
  DLTRAIN_LAUNCH_SHARED(kernel, grid, block, 0, stream, __VA_ARGS__)
// With `bytes` of dynamic shared memory, of which allow_shared() has returned that they are there.
#define DLTRAIN_LAUNCH_SHARED(kernel, grid, block, bytes, stream, ...)                      \
  do {                                                                                      \
    (kernel)<<<(grid), (block), (bytes), static_cast<cudaStream_t>(stream)>>>(__VA_ARGS__); \
    ::dltrain::check_launch(static_cast<int>(cudaGetLastError()), #kernel);                 \
  } while (false)

namespace dltrain {

// The dynamic shared memory of the block, which begins at a multiple of 16 bytes.
template <typename T>
__device__ T* dynamic_shared() {
  extern __shared__ uint4 dynamic_memory[];
  return reinterpret_cast<T*>(dynamic_memory);
}

// Lets the kernel have as much dynamic shared memory as the GPU has for a block; returns whether
// `bytes` fit.
template <typename Kernel>
bool allow_shared(Kernel* kernel, size_t bytes) {
  int device = 0, most = 0;
  cudaFuncAttributes own{};
  if (cudaGetDevice(&device) != cudaSuccess || cudaFuncGetAttributes(&own, kernel) != cudaSuccess ||
      cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) !=
          cudaSuccess ||
      bytes + own.sharedSizeBytes > static_cast<size_t>(most)) {
    return false;
  }
  most -= static_cast<int>(own.sharedSizeBytes);
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most) ==
             cudaSuccess &&
         cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                              cudaSharedmemCarveoutMaxShared) == cudaSuccess;
}

}  // namespace dltrain
#endif

namespace dltrain {

inline constexpr int kWarp = 32;

// Calls f with a value of the type that stores this floating dtype; does nothing for other dtypes.
template <typename F>
void with_floating(DType dtype, const F& f) {
  if (dtype == DType::f32) return f(float{});
  if (dtype == DType::f64) return f(double{});
  if (dtype == DType::bf16) return f(DeviceBf16{});
  if (dtype == DType::f16) return f(DeviceF16{});
}

// The same for f32 and f64 only.
template <typename F>
void with_wide(DType dtype, const F& f) {
  dtype == DType::f64 ? f(double{}) : f(float{});
}

inline bool is_pack_aligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

// Returns true if rows of all these tensors can be read in packs (nullptr: absent).
template <typename T>
bool rows_in_packs(int64_t columns, std::initializer_list<const void*> tensors) {
  bool aligned = columns % Pack<T>::size == 0;
  for (const void* tensor : tensors) aligned = aligned && is_pack_aligned(tensor);
  return aligned;
}

// The bits of element `index` of a random_block, without an index of memory at run time.
__device__ inline uint32_t element_bits(const Philox4& block, uint64_t index) {
  const uint32_t low = (index & 1) != 0 ? block.v[1] : block.v[0];
  const uint32_t high = (index & 1) != 0 ? block.v[3] : block.v[2];
  return (index & 2) != 0 ? high : low;
}

// The elements of a pack of a cast: 16 bytes of the narrower type.
template <typename From, typename To>
inline constexpr int kCastPack =
    Pack<From>::size > Pack<To>::size ? Pack<From>::size : Pack<To>::size;

// y = x, or y += x, of N elements from `at` on.
template <int N, typename From, typename To>
__device__ void cast_elements(const From* x, To* y, int64_t at, bool accumulate = false) {
  From in[N];
  To out[N];
  load_elements<From, N>(x, at, in);
  if (accumulate) load_elements<To, N>(y, at, out);
  for (int j = 0; j < N; ++j) {
    const To value = static_cast<To>(in[j]);
    out[j] = accumulate ? static_cast<To>(out[j] + value) : value;
  }
  store_elements<To, N>(out, y, at);
}

// Returns the sum over the warp, in every lane. The order of the additions is fixed.
template <typename T>
__device__ T warp_sum(T value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, offset);
  }
  return value;
}

template <typename T>
__device__ T warp_max(T value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const T other = __shfl_xor_sync(0xffffffffu, value, offset);
    // NaN wins on either side.
    value = (other > value || other != other) ? other : value;
  }
  return value;
}

// Returns the sum over the block (a multiple of 32 threads, all of which must call), in every
// thread. Ends with a barrier, so it may be called again immediately.
template <typename T>
__device__ T block_sum(T value) {
  __shared__ T partial[kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  value = warp_sum(value);
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  value = warp_sum(lane < warps ? partial[lane] : T(0));
  __syncthreads();
  return value;
}

template <typename T>
__device__ T block_max(T value) {
  __shared__ T partial[kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  value = warp_max(value);
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  value = warp_max(partial[lane < warps ? lane : 0]);
  __syncthreads();
  return value;
}

}  // namespace dltrain
