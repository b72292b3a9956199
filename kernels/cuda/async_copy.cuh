// Copies from global to shared memory that need no registers and of which many are on their way at
// once, from sm_80 on; before, and in the emulation, they are done at once. Included by .cu files
// only.
//
// A thread sees its own copies after wait_copies, other threads after a barrier that follows it.
#pragma once

#include "cuda/elements.cuh"

namespace dltrain {

// Both addresses are multiples of `Bytes`: 4, 8 or 16.
template <int Bytes>
__device__ void copy_async(void* shared, const void* global) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  if constexpr (Bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(global), "n"(Bytes)
                 : "memory");
  }
#else
  using Words = Elements<uint32_t, Bytes / 4>;
  *static_cast<Words*>(shared) = *static_cast<const Words*>(global);
#endif
}

// Ends a group: the copies of this thread since the last one.
__device__ inline void commit_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most the last `Pending` groups of this thread are on their way.
template <int Pending>
__device__ void wait_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
#endif
}

}  // namespace dltrain
