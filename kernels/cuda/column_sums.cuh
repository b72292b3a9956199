// Column-wise kernels over [rows, columns], and two sums over the rows of each column: first over
// fixed chunks of rows, which are then added in order and in double. A block has `lanes` threads
// along the columns, each with `W` adjacent columns (a pack of 16 bytes, or one element), by
// kColumnBlock / lanes threads along the rows. Included by .cu files only.
#pragma once

#include "cuda/device_code.cuh"

namespace dltrain {

inline constexpr int kColumnBlock = 256;

// `blocks` along the rows; each thread processes `width` columns. A block has at most `most` lanes.
struct ColumnGrid {
  ColumnGrid(int64_t columns, int width, int64_t blocks, unsigned most = kWarp) {
    const int64_t packs = divide_up(columns, width);
    unsigned lanes = 1;
    while (lanes < most && lanes < packs) lanes *= 2;
    block = dim3(lanes, kColumnBlock / lanes);
    grid = dim3(static_cast<unsigned>(divide_up(packs, lanes)), static_cast<unsigned>(blocks));
  }
  // For kernels that write every element of [rows, columns].
  static ColumnGrid over_rows(int64_t columns, int width, int64_t rows) {
    ColumnGrid tiles(columns, width, 1);
    const int64_t all = divide_up(rows, tiles.block.y);
    const int64_t most = divide_up(stride_grid(rows, 1), tiles.grid.x);
    tiles.grid.y = static_cast<unsigned>(all < most ? all : most);
    return tiles;
  }
  // For sums over the results of chunks: few lanes, which still read 32 bytes at once, and many
  // threads along the chunks.
  static ColumnGrid join(int64_t columns) { return {columns, 1, 1, 8}; }

  dim3 grid, block;
};

// Calls f with the number of elements per thread as a constant: a pack if `packs` (rows_in_packs),
// else one.
template <typename T, typename F>
void with_width(bool packs, const F& f) {
  if (packs) return f(std::integral_constant<int, Pack<T>::size>{});
  f(std::integral_constant<int, 1>{});
}

// Returns the first column of this thread.
template <int W>
__device__ int64_t own_columns() {
  return (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * W;
}

template <int W, typename T>
__device__ void load_columns(const T* from, MathOf<T> (&to)[W]) {
  load_elements<T, W>(from, 0, to);
}
template <int W, typename T>
__device__ void store_columns(const MathOf<T> (&from)[W], T* to) {
  store_elements<T, W>(from, to, 0);
}

// Adds two values of every column over the rows of the block, in order, and calls use(column, first
// sum, second sum) for each column of the block. All threads of the block must call it.
template <int W, typename M, typename Use>
__device__ void add_parts(const M (&first)[W], const M (&second)[W], int64_t columns,
                          const Use& use) {
  __shared__ M all[2][kColumnBlock * W];
  const int own = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  const int width = static_cast<int>(blockDim.x) * W, parts = static_cast<int>(blockDim.y);
  for (int j = 0; j < W; ++j) {
    all[0][own * W + j] = first[j];
    all[1][own * W + j] = second[j];
  }
  __syncthreads();
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * width;
  for (int c = own; c < width && begin + c < columns; c += kColumnBlock) {
    M a = all[0][c], b = all[1][c];
    for (int p = 1; p < parts; ++p) {
      a += all[0][p * width + c];
      b += all[1][p * width + c];
    }
    use(begin + c, a, b);
  }
}

// partial[chunk] = {first sums [columns], second sums [columns]}; a result may be nullptr. Launched
// with ColumnGrid::join(columns).
template <typename T>
__global__ void join_pairs_kernel(const T* partial, T* first, T* second, int64_t columns,
                                  int64_t chunks) {
  const int64_t column = own_columns<1>();
  double a[1] = {0}, b[1] = {0};
  if (column < columns) {
    for (int64_t i = threadIdx.y; i < chunks; i += blockDim.y) {
      a[0] += static_cast<double>(partial[2 * columns * i + column]);
      b[0] += static_cast<double>(partial[2 * columns * i + columns + column]);
    }
  }
  add_parts(a, b, columns, [&](int64_t c, double sum, double other) {
    if (first != nullptr) first[c] = static_cast<T>(sum);
    if (second != nullptr) second[c] = static_cast<T>(other);
  });
}

}  // namespace dltrain
