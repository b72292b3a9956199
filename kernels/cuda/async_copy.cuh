// Copies from device memory to shared memory that do not wait for their data (cp.async of sm_80 and
// newer): what is on its way needs no registers. Older GPUs and the emulation copy at once.
// Included by .cu files only.
#pragma once

#include "cuda/device_code.cuh"

namespace dltrain {

// Queues a copy of kBytes = 4, 8 or 16 to addresses that are aligned to them.
template <int kBytes>
__device__ inline void copy_async(void* shared, const void* global) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(global), "n"(kBytes)
                 : "memory");
  }
#else
  struct alignas(kBytes) Words {
    unsigned v[kBytes / 4];
  };
  *static_cast<Words*>(shared) = *static_cast<const Words*>(global);
#endif
}

// Ends a group of this thread's copies.
__device__ inline void commit_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most kPending of this thread's newest groups are on their way. Other threads see
// the data after a barrier.
template <int kPending>
__device__ inline void wait_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}

// Reads N elements that this thread has copied.
template <typename T, int N, typename M>
__device__ void shared_elements(const unsigned char* from, M* to) {
  const auto in = *reinterpret_cast<const Elements<T, N>*>(from);
  for (int j = 0; j < N; ++j) to[j] = static_cast<M>(in.v[j]);
}

}  // namespace dltrain
