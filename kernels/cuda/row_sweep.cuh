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

// Reads N elements of a tensor [begin, end) from anywhere in it: a pack that is not aligned as a
// part of the two aligned ones that contain it, where both lie in the tensor.
template <typename T, int N, typename M>
__device__ void load_anywhere(const T* from, const T* begin, const T* end, M (&to)[N]) {
  const unsigned offset = static_cast<unsigned>(reinterpret_cast<uintptr_t>(from) % 16);
  const T* aligned = from - offset / sizeof(T);
  if (N == 1 || offset == 0) return load_elements<T, N>(from, 0, to);
  if (aligned < begin || aligned + 2 * N > end) {
    for (int j = 0; j < N; ++j) to[j] = static_cast<M>(from[j]);
    return;
  }
  uint32_t word[8];
  load_elements<uint32_t, 8>(aligned, 0, word);
  // Shifts by 8, by 4 and by less bytes.
  for (int i = 0; i < 6; ++i) word[i] = (offset & 8) != 0 ? word[i + 2] : word[i];
  for (int i = 0; i < 5; ++i) word[i] = (offset & 4) != 0 ? word[i + 1] : word[i];
  Elements<uint32_t, 4> shifted;
  for (int i = 0; i < 4; ++i) {
    const uint64_t both = uint64_t{word[i + 1]} << 32 | word[i];
    shifted.v[i] = static_cast<uint32_t>(both >> (offset % 4 * 8));
  }
  const auto pack = bits_as<Pack<T>>(shifted);
  for (int j = 0; j < N; ++j) to[j] = static_cast<M>(pack.v[j % Pack<T>::size]);
}

// out[column] = f(column, in[column]) for every column, 16 bytes at a time from the first aligned
// element on if `in` and `out` lie alike; they may be the same.
template <int kThreads, typename T, typename F>
__device__ void map_row(const T* in, T* out, int64_t columns, const F& f) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(in);
  const bool alike = (address - reinterpret_cast<uintptr_t>(out)) % 16 == 0;
  const auto skipped = static_cast<int64_t>((16 - address % 16) % 16 / sizeof(T));
  const int64_t loose = alike && skipped < columns ? skipped : columns;
  const int lane = own_lane<kThreads>();
  const auto part = [&]<int N>(int64_t at) {
    MathOf<T> value[N];
    load_elements<T, N>(in, at, value);
    for (int j = 0; j < N; ++j) value[j] = f(at + j, value[j]);
    store_elements<T, N>(value, out, at);
  };
  for (int64_t c = lane; c < loose; c += kThreads) part.template operator()<1>(c);
  sweep_elements<Pack<T>::size>(
      (columns - loose) / Pack<T>::size, columns - loose, lane, kThreads,
      [&]<int N>(int64_t at) { part.template operator()<N>(loose + at); });
}

// Calls f(column, values of the rows `in` at that column) for every column; writes its results to
// `out`, unless that is nullptr. With `packs` the rows, all of which must be aligned, are read
// 16 bytes at a time.
template <int kThreads, typename T, int kInputs, typename F>
__device__ void sweep_row(const T* const (&in)[kInputs], T* out, int64_t columns, bool packs,
                          const F& f) {
  using M = MathOf<T>;
  constexpr int kWidth = Pack<T>::size;
  sweep_elements<kWidth>(packs ? columns / kWidth : 0, columns, own_lane<kThreads>(), kThreads,
                         [&]<int N>(int64_t at) {
                           M values[kInputs][N], made[N];
                           for (int k = 0; k < kInputs; ++k) {
                             load_elements<T, N>(in[k], at, values[k]);
                           }
                           for (int j = 0; j < N; ++j) {
                             M value[kInputs];
                             for (int k = 0; k < kInputs; ++k) value[k] = values[k][j];
                             made[j] = f(at + j, value);
                           }
                           if (out != nullptr) store_elements<T, N>(made, out, at);
                         });
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
