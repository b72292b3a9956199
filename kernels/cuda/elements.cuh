// Elements of tensors as kernels see them, and where a thread stands. No header of the standard
// library or of CUDA but what NVRTC is given too (cuda/fused_source.h).
#pragma once

#include <cstdint>

#include "tensor/low_precision.h"

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

// An element of 16 bits that converts as float does.
template <typename Storage>
struct Narrow {
  Storage stored;

  Narrow() = default;
  __device__ explicit Narrow(float x) { from_f32(x, stored); }
  __device__ operator float() const { return to_f32(stored); }
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

template <typename T, int N, typename M>
__device__ void load_elements(const void* from, int64_t at, M* to) {
  const auto in = *reinterpret_cast<const Elements<T, N>*>(static_cast<const T*>(from) + at);
  for (int j = 0; j < N; ++j) to[j] = static_cast<M>(in.v[j]);
}

template <typename T, int N, typename M>
__device__ void store_elements(const M* from, void* to, int64_t at) {
  Elements<T, N> out;
  for (int j = 0; j < N; ++j) out.v[j] = static_cast<T>(from[j]);
  *reinterpret_cast<Elements<T, N>*>(static_cast<T*>(to) + at) = out;
}

__device__ inline int64_t thread_index() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t thread_count() {
  return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

}  // namespace dltrain
