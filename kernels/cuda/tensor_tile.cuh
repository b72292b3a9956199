// A tile of a matrix product of bf16 or fp16 on tensor cores, where rows are multiples of 16 bytes:
// 128×128 results of a block of 256 threads. The copies of the next operands are on their way while
// it multiplies. Sums are added in f32, in the order of the axis that is summed over. Included by
// .cu files only.
#pragma once

#include "cuda/async_copy.cuh"
#include "cuda/tensor_cores.cuh"

namespace dltrain {

inline constexpr int kTensorExtent = 128;  // rows and columns of a block's results
inline constexpr int kTensorInner = 32;    // positions that are summed over at a time
inline constexpr int kTensorStages = 4;    // of the pipeline of copies
inline constexpr int kTensorThreads = 256;
inline constexpr int kTensorPack = 8;  // elements of 16 bytes, and results that are stored at once
// Warps stand in 2 rows and 4 columns; each has 4×2 tiles of 16×16.
inline constexpr int kWarpsAcross = 4, kTilesDown = 4, kTilesAcross = 2;
// A tile of either operand in shared memory; 16 bytes after each row prevent bank conflicts.
inline constexpr int kTensorTileElements = kTensorExtent * (kTensorInner + kTensorPack);
inline constexpr size_t kTensorShared = size_t{2} * kTensorStages * kTensorTileElements * 2;

// An operand in global memory: `extent` rows or columns of results, each of `inner` elements that
// are summed over. `Inner`: these are neighbours in memory, else those of the extent are.
template <typename T, bool Inner>
struct TensorOperand {
  const T* data;
  int64_t stride, extent, inner;

  static constexpr int kRow = (Inner ? kTensorInner : kTensorExtent) + kTensorPack;
  static constexpr int kRows = Inner ? kTensorExtent : kTensorInner;
  static_assert(kRow * kRows <= kTensorTileElements);

  __device__ static const T* at(const T* tile, int position, int inner_position) {
    return tile + (Inner ? position * kRow + inner_position : inner_position * kRow + position);
  }

  // Begins to copy the tile at (first, from), with zeros for what the operand lacks.
  __device__ void copy(int64_t first, int64_t from, T* tile) const {
    constexpr int kPacks = kRow / kTensorPack - 1;  // in a row
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kPacks; i += kTensorThreads) {
      const int row = i / kPacks, column = i % kPacks * kTensorPack;
      const int64_t position = first + (Inner ? row : column);
      const int64_t inner_position = from + (Inner ? column : row);
      T* to = tile + row * kRow + column;
      if (position < extent && inner_position < inner) {
        copy_async<16>(to, data + (Inner ? position * stride + inner_position
                                         : inner_position * stride + position));
      } else {
        *reinterpret_cast<Pack<uint32_t>*>(to) = {};
      }
    }
  }
};

// Calls store(row, column, v) for each eight neighbouring results v of the tile that begins at
// (row, column); the columns are a multiple of eight. All threads of the block must call, with
// kTensorShared bytes of dynamic shared memory and no other.
template <typename T, bool InnerA, bool InnerB, typename Store>
__device__ void run_tensor_tile(const TensorOperand<T, InnerA>& a,
                                const TensorOperand<T, InnerB>& b, int64_t row, int64_t column,
                                const Store& store) {
  T* shared = dynamic_shared<T>();
  const auto tile_of = [&](int64_t step, int operand) {
    return shared + (2 * static_cast<int>(step % kTensorStages) + operand) * kTensorTileElements;
  };
  const auto copy = [&](int64_t step) {
    const int64_t from = step * kTensorInner;
    if (from < a.inner) {
      a.copy(row, from, tile_of(step, 0));
      b.copy(column, from, tile_of(step, 1));
    }
    commit_copies();
  };
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp_row = warp / kWarpsAcross * kTilesDown * kTensorTile;
  const int warp_column = warp % kWarpsAcross * kTilesAcross * kTensorTile;
  SumTile sums[kTilesDown][kTilesAcross];
  for (auto& of_row : sums) {
    for (SumTile& sum : of_row) sum.clear();
  }
  for (int step = 0; step < kTensorStages - 1; ++step) copy(step);
  for (int64_t step = 0; step * kTensorInner < a.inner; ++step) {
    wait_copies<kTensorStages - 2>();
    __syncthreads();  // all copies have come, and the tile that is replaced has been read
    copy(step + kTensorStages - 1);
    DLTRAIN_UNROLL
    for (int inner = 0; inner < kTensorInner; inner += kTensorTile) {
      OperandTile<T, true, InnerA> left[kTilesDown];
      OperandTile<T, false, InnerB> right[kTilesAcross];
      DLTRAIN_UNROLL
      for (int i = 0; i < kTilesDown; ++i) {
        left[i].load(a.at(tile_of(step, 0), warp_row + i * kTensorTile, inner), a.kRow);
      }
      DLTRAIN_UNROLL
      for (int j = 0; j < kTilesAcross; ++j) {
        right[j].load(b.at(tile_of(step, 1), warp_column + j * kTensorTile, inner), b.kRow);
      }
      DLTRAIN_UNROLL
      for (int i = 0; i < kTilesDown; ++i) {
        DLTRAIN_UNROLL
        for (int j = 0; j < kTilesAcross; ++j) sums[i][j].add_product(left[i], right[j]);
      }
    }
  }
  wait_copies<0>();
  __syncthreads();
  // The sums pass through shared memory, 16 rows of a warp at a time.
  constexpr int kSumRow = kTilesAcross * kTensorTile + 4;
  constexpr int kPacks = kTilesAcross * kTensorTile / kTensorPack;  // in a row
  float* staged = dynamic_shared<float>() + warp * kTensorTile * kSumRow;
  DLTRAIN_UNROLL
  for (int i = 0; i < kTilesDown; ++i) {
    DLTRAIN_UNROLL
    for (int j = 0; j < kTilesAcross; ++j) sums[i][j].store(staged + j * kTensorTile, kSumRow);
    __syncwarp();
    for (int pack = lane; pack < kTensorTile * kPacks; pack += kWarp) {
      const int down = pack / kPacks, across = pack % kPacks * kTensorPack;
      const int64_t at_row = row + warp_row + i * kTensorTile + down;
      const int64_t at_column = column + warp_column + across;
      if (at_row >= a.extent || at_column >= b.extent) continue;
      using Eight = Elements<float, kTensorPack>;
      Eight eight = *reinterpret_cast<const Eight*>(staged + down * kSumRow + across);
      store(at_row, at_column, eight.v);
    }
    __syncwarp();
  }
}

}  // namespace dltrain
