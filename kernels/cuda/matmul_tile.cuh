// A tile of a plain matrix product, for plain_matmul.cu, grouped_matmul.cu and galore.cu: 32×32
// results of a block of 16×16 threads, 2×2 each; both operands are staged in shared memory 16 inner
// positions at a time. Included by .cu files only.
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

// The operands that a block works on.
template <typename M>
struct OperandTiles {
  M a[kTileInner][kTileExtent + 1];  // padded against bank conflicts
  M b[kTileInner][kTileExtent + 1];
};

// Calls store(row, column, sum) for the results y[i, j] = Σ a(i, l)·b(l, j) of the tile that begins
// at (row, column); a and b return M. y is [m, n], and the sum has k terms. All 16×16 threads of
// the block, (tx, ty), must call. `tiles` is in shared memory.
template <typename M, typename A, typename B, typename Store>
__device__ void product_tile(OperandTiles<M>& tiles, int tx, int ty, int64_t m, int64_t n,
                             int64_t k, const A& a, const B& b, int64_t row, int64_t column,
                             const Store& store) {
  const int thread = ty * kTileSide + tx;
  M sum[2][2] = {};
  for (int64_t inner = 0; inner < k; inner += kTileInner) {
    for (int i = thread; i < kTileInner * kTileExtent; i += kTileSide * kTileSide) {
      const int l = i / kTileExtent, at = i % kTileExtent;
      const bool inside = inner + l < k;
      tiles.a[l][at] = inside && row + at < m ? a(row + at, inner + l) : M(0);
      tiles.b[l][at] = inside && column + at < n ? b(inner + l, column + at) : M(0);
    }
    __syncthreads();
    for (int l = 0; l < kTileInner; ++l) {
      for (int i = 0; i < 2; ++i) {
        for (int j = 0; j < 2; ++j) {
          sum[i][j] += tiles.a[l][ty + i * kTileSide] * tiles.b[l][tx + j * kTileSide];
        }
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) {
      const int64_t at_row = row + ty + i * kTileSide, at_column = column + tx + j * kTileSide;
      if (at_row < m && at_column < n) store(at_row, at_column, sum[i][j]);
    }
  }
}

// The same of operands in memory.
template <typename T, typename Store>
__device__ void run_product_tile(const TiledProduct& c, const T* a, const T* b, int64_t row,
                                 int64_t column, const Store& store) {
  using M = MathOf<T>;
  __shared__ OperandTiles<M> tiles;
  product_tile<M>(
      tiles, static_cast<int>(threadIdx.x), static_cast<int>(threadIdx.y), c.m, c.n, c.k,
      [&](int64_t i, int64_t l) { return static_cast<M>(a[i * c.a_row + l * c.a_inner]); },
      [&](int64_t l, int64_t j) { return static_cast<M>(b[l * c.b_inner + j * c.b_column]); }, row,
      column, store);
}

}  // namespace dltrain
