// A tile of a plain matrix product, for plain_matmul.cu and grouped_matmul.cu: 32×32 results of a
// block of 16×16 threads, 2×2 each; both operands are staged in shared memory 16 inner positions at
// a time. Included by .cu files only.
#pragma once

#include "cuda/device_code.cuh"

namespace dltrain {

inline constexpr int kTileSide = 16;               // threads along each edge of a block
inline constexpr int kTileExtent = 2 * kTileSide;  // rows and columns of a tile
inline constexpr int kTileInner = 16;

// y[i, j] = Σ a[i, l]·b[l, j]; strides in elements.
struct TiledProduct {
  int64_t m, n, k;
  int64_t a_row, a_inner;     // a[i, l] is at i·a_row + l·a_inner
  int64_t b_inner, b_column;  // b[l, j] is at l·b_inner + j·b_column
};

// Calls store(row, column, sum) for the results of the tile that begins at (row, column). All
// threads of the block must call.
template <typename T, typename Store>
__device__ void run_product_tile(const TiledProduct& c, const T* a, const T* b, int64_t row,
                                 int64_t column, const Store& store) {
  using M = MathOf<T>;
  __shared__ M a_tile[kTileInner][kTileExtent + 1];  // padded against bank conflicts
  __shared__ M b_tile[kTileInner][kTileExtent + 1];
  const int tx = static_cast<int>(threadIdx.x), ty = static_cast<int>(threadIdx.y);
  const int thread = ty * kTileSide + tx;
  M sum[2][2] = {};
  for (int64_t inner = 0; inner < c.k; inner += kTileInner) {
    for (int i = thread; i < kTileInner * kTileExtent; i += kTileSide * kTileSide) {
      const int l = i / kTileExtent, at = i % kTileExtent;
      const bool inside = inner + l < c.k;
      const int64_t a_at = (row + at) * c.a_row + (inner + l) * c.a_inner;
      const int64_t b_at = (inner + l) * c.b_inner + (column + at) * c.b_column;
      a_tile[l][at] = inside && row + at < c.m ? static_cast<M>(a[a_at]) : M(0);
      b_tile[l][at] = inside && column + at < c.n ? static_cast<M>(b[b_at]) : M(0);
    }
    __syncthreads();
    for (int l = 0; l < kTileInner; ++l) {
      for (int i = 0; i < 2; ++i) {
        for (int j = 0; j < 2; ++j) {
          sum[i][j] += a_tile[l][ty + i * kTileSide] * b_tile[l][tx + j * kTileSide];
        }
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) {
      const int64_t at_row = row + ty + i * kTileSide, at_column = column + tx + j * kTileSide;
      if (at_row < c.m && at_column < c.n) store(at_row, at_column, sum[i][j]);
    }
  }
}

}  // namespace dltrain
