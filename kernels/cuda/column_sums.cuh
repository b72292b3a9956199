// Two sums over the rows of each column of [rows, columns]: of fixed chunks of rows first, a block
// of 32 columns by 8 rows a chunk, which are then added in order and in double. Included by .cu
// files only.
#pragma once

#include "cuda/device_code.cuh"

namespace dltrain {

inline constexpr int kTileColumns = 32, kTileRows = 8;

// Adds two values of every thread over the rows of the block; the result is in part 0.
template <typename T>
__device__ void add_parts(T& first, T& second, int part, int lane) {
  __shared__ T partial[2][kTileRows][kTileColumns];
  partial[0][part][lane] = first;
  partial[1][part][lane] = second;
  __syncthreads();
  if (part != 0) return;
  for (int i = 1; i < kTileRows; ++i) {
    first += partial[0][i][lane];
    second += partial[1][i][lane];
  }
}

// partial[chunk] = {first sums [columns], second sums [columns]}; a result may be nullptr.
template <typename T>
__global__ void join_pairs_kernel(const T* partial, T* first, T* second, int64_t columns,
                                  int64_t chunks) {
  const int64_t column = thread_index();
  if (column >= columns) return;
  double a = 0, b = 0;
  for (int64_t i = 0; i < chunks; ++i) {
    a += static_cast<double>(partial[2 * columns * i + column]);
    b += static_cast<double>(partial[2 * columns * i + columns + column]);
  }
  if (first != nullptr) first[column] = static_cast<T>(a);
  if (second != nullptr) second[column] = static_cast<T>(b);
}

}  // namespace dltrain
