// Elements of tensors as kernels see them, and where a thread stands. No header of the standard
// library or of CUDA but what NVRTC is given too (cuda/fused_source.h).
#pragma once

#include <cstdint>

#include "tensor/low_precision.h"

// For long loops over the elements of a thread, which lie in local memory if the compiler does not
// unroll the loop: registers have no index. DLTRAIN_ROLL keeps a loop, which takes fewer registers.
#if defined(__CUDACC__)
#define DLTRAIN_UNROLL _Pragma("unroll")
#define DLTRAIN_ROLL _Pragma("unroll 1")
#else
#define DLTRAIN_UNROLL
#define DLTRAIN_ROLL
#endif

namespace dltrain {

// The type that T is computed in: double for double, float for everything narrower.
template <typename T>
struct MathType {
  using type = float;
};
template <>
struct MathType<double> {
  using type = double;
};
template <typename T>
using MathOf = typename MathType<T>::type;

// An element of 16 bits that converts as float does, by the instructions that GPUs have for that:
// only the payload of NaN differs from the functions of tensor/low_precision.h.
template <typename Storage>
struct Narrow {
  Storage stored;

  Narrow() = default;
  __device__ explicit Narrow(float x) { convert(x, stored); }
  __device__ operator float() const { return converted(stored); }

 private:
  static __device__ float converted(Bf16 x) { return to_f32(x); }
#if defined(__CUDA_ARCH__)
  static __device__ void convert(float x, F16& y) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  }
  static __device__ float converted(F16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
  }
#else
  static __device__ void convert(float x, F16& y) {
    from_f32(x, y);
  }
  static __device__ float converted(F16 x) {
    return to_f32(x);
  }
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  static __device__ void convert(float x, Bf16& y) {
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  }
#else
  static __device__ void convert(float x, Bf16& y) {
    from_f32(x, y);
  }
#endif
};
using DeviceBf16 = Narrow<Bf16>;
using DeviceF16 = Narrow<F16>;

// 16 bytes: the widest access of one thread.
template <typename T>
struct alignas(16) Pack {
  static constexpr int size = 16 / static_cast<int>(sizeof(T));
  T v[size];
};

// N elements that are read or written at once, by accesses of up to 16 bytes.
template <typename T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Elements {
  T v[N];
};

// The compiler does not know of addresses that a kernel has read that they are of global memory.
template <typename E>
__device__ E* in_global(E* address) {
#if defined(__CUDACC__)
  __builtin_assume(__isGlobal(address));
#endif
  return address;
}

template <typename T, int N, typename M>
__device__ void load_elements(const void* from, int64_t at, M* to) {
  const auto in =
      *in_global(reinterpret_cast<const Elements<T, N>*>(static_cast<const T*>(from) + at));
  for (int j = 0; j < N; ++j) to[j] = static_cast<M>(in.v[j]);
}

template <typename T, int N, typename M>
__device__ void store_elements(const M* from, void* to, int64_t at) {
  Elements<T, N> out;
  for (int j = 0; j < N; ++j) out.v[j] = static_cast<T>(from[j]);
  auto* place = in_global(reinterpret_cast<Elements<T, N>*>(static_cast<T*>(to) + at));
  if constexpr (sizeof(out) % 16 == 0) {
    // nvcc divides some stores of a struct, or of a word, into those of its members, but not these.
    struct Words {
      uint4 v[sizeof(out) / 16];
    };
    const auto words = bits_as<Words>(out);
    DLTRAIN_UNROLL
    for (int i = 0; i < static_cast<int>(sizeof(out) / 16); ++i) {
      __stcg(reinterpret_cast<uint4*>(place) + i, words.v[i]);
    }
  } else {
    *place = out;
  }
}

// Calls f.operator()<N>(first element) for `packs` whole packs of N elements, then f.operator()<1>
// for the other elements up to `count`: those of thread `first` of `threads`.
template <int N, typename F>
__device__ void sweep_elements(int64_t packs, int64_t count, int64_t first, int64_t threads,
                               const F& f) {
  for (int64_t i = first; i < packs; i += threads) f.template operator()<N>(i * N);
  for (int64_t i = packs * N + first; i < count; i += threads) f.template operator()<1>(i);
}

__device__ inline int64_t thread_index() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t thread_count() {
  return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

}  // namespace dltrain
