// Row-wise kernels over [rows, columns]: one warp or one block per row. Included by .cu files only.
#pragma once

#include "cuda/device_code.cuh"

namespace dltrain {

inline constexpr int kRowBlock = 256;

// Rows of up to this length are processed by a warp, longer ones by a block.
inline constexpr int64_t kWarpRow = 1024;

// The sum or the maximum over the threads that share a row: kWarp or kRowBlock of them.
template <int kThreads, typename T>
__device__ T row_sum(T value) {
  if constexpr (kThreads == kWarp) return warp_sum(value);
  if constexpr (kThreads == kRowBlock) return block_sum(value);
}
template <int kThreads, typename T>
__device__ T row_max(T value) {
  if constexpr (kThreads == kWarp) return warp_max(value);
  if constexpr (kThreads == kRowBlock) return block_max(value);
}

// The row of this thread, and its index among the threads of the row.
template <int kThreads>
__device__ int64_t own_row() {
  return thread_index() / kThreads;
}
template <int kThreads>
__device__ int own_lane() {
  return static_cast<int>(threadIdx.x) % kThreads;
}

// Returns the first index of the maximum of `count` values.
template <int kThreads, typename T, typename Value>
__device__ int64_t first_greatest(int64_t count, const Value& value, T& greatest) {
  T own = -static_cast<T>(INFINITY);
  int64_t where = count;
  for (int64_t k = own_lane<kThreads>(); k < count; k += kThreads) {
    const T x = value(k);
    if (x > own || where == count) {
      own = x;
      where = k;
    }
  }
  greatest = row_max<kThreads>(own);
  return static_cast<int64_t>(-row_max<kThreads>(own == greatest ? -static_cast<double>(where)
                                                                 : -static_cast<double>(count)));
}

// Calls f(column, values of the rows `in` at that column) for every column; writes its results to
// `out`, unless that is nullptr. With `packs` the rows are read 16 bytes at a time: all of them
// must be aligned, and `columns` a multiple of a pack.
template <int kThreads, typename T, int kInputs, typename F>
__device__ void sweep_row(const T* const (&in)[kInputs], T* out, int64_t columns, bool packs,
                          const F& f) {
  using M = MathOf<T>;
  const int lane = own_lane<kThreads>();
  if (!packs) {
    for (int64_t c = lane; c < columns; c += kThreads) {
      M value[kInputs];
      for (int k = 0; k < kInputs; ++k) value[k] = static_cast<M>(in[k][c]);
      const M made = f(c, value);
      if (out != nullptr) out[c] = static_cast<T>(made);
    }
    return;
  }
  constexpr int kWidth = Pack<T>::size;
  for (int64_t p = lane; p < columns / kWidth; p += kThreads) {
    Pack<T> pack[kInputs], made;
    for (int k = 0; k < kInputs; ++k) pack[k] = reinterpret_cast<const Pack<T>*>(in[k])[p];
    for (int j = 0; j < kWidth; ++j) {
      M value[kInputs];
      for (int k = 0; k < kInputs; ++k) value[k] = static_cast<M>(pack[k].v[j]);
      made.v[j] = static_cast<T>(f(p * kWidth + j, value));
    }
    if (out != nullptr) reinterpret_cast<Pack<T>*>(out)[p] = made;
  }
}

// Launches kernel<T, kWarp> or kernel<T, kRowBlock> with one warp or block per row.
#define DLTRAIN_LAUNCH_ROWS(kernel, T, rows, columns, stream, ...)                                 \
  do {                                                                                             \
    if ((columns) <= kWarpRow) {                                                                   \
      DLTRAIN_LAUNCH((kernel<T, kWarp>),                                                           \
                     static_cast<unsigned>(divide_up(rows, kRowBlock / kWarp)), kRowBlock, stream, \
                     __VA_ARGS__);                                                                 \
    } else {                                                                                       \
      DLTRAIN_LAUNCH((kernel<T, kRowBlock>), static_cast<unsigned>(rows), kRowBlock, stream,       \
                     __VA_ARGS__);                                                                 \
    }                                                                                              \
  } while (false)

}  // namespace dltrain
