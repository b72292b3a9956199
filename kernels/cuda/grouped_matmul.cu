// grouped_matmul and the gradient of its matrices (lib/ops/experts.cpp). Tiles are those of
// plain_matmul.cu. Blocks find their expert by the offsets in device memory: the grid has room for
// any distribution of the rows, and blocks beyond the last tile end at once.
#include "cuda/device_code.cuh"
#include "cuda/makers.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

constexpr int kGroupedSide = 16;                // threads along each edge of a block
constexpr int kGroupedTile = 2 * kGroupedSide;  // rows and columns of a tile
constexpr int kGroupedInner = 16;

// y[i, j] = Σ a[i, l]·b[l, j]; strides in elements.
template <typename T, typename Out>
struct GroupedProductTile {
  const T *a, *b;
  int64_t m, n, k;
  int64_t a_row, a_inner, b_inner, b_column;
  Out* y;  // n elements a row
};

// Computes the tile that begins at (row, column). All threads of the block must call.
template <typename T, typename Out>
__device__ void run_grouped_tile(const GroupedProductTile<T, Out>& c, int64_t row, int64_t column,
                                 bool accumulate) {
  using M = MathOf<T>;
  __shared__ M a_tile[kGroupedInner][kGroupedTile + 1];  // padded against bank conflicts
  __shared__ M b_tile[kGroupedInner][kGroupedTile + 1];
  const int tx = static_cast<int>(threadIdx.x), ty = static_cast<int>(threadIdx.y);
  const int thread = ty * kGroupedSide + tx;
  M sum[2][2] = {};
  for (int64_t inner = 0; inner < c.k; inner += kGroupedInner) {
    for (int i = thread; i < kGroupedInner * kGroupedTile; i += kGroupedSide * kGroupedSide) {
      const int l = i / kGroupedTile, at = i % kGroupedTile;
      const bool inside = inner + l < c.k;
      const int64_t a_at = (row + at) * c.a_row + (inner + l) * c.a_inner;
      const int64_t b_at = (inner + l) * c.b_inner + (column + at) * c.b_column;
      a_tile[l][at] = inside && row + at < c.m ? static_cast<M>(c.a[a_at]) : M(0);
      b_tile[l][at] = inside && column + at < c.n ? static_cast<M>(c.b[b_at]) : M(0);
    }
    __syncthreads();
    for (int l = 0; l < kGroupedInner; ++l) {
      for (int i = 0; i < 2; ++i) {
        for (int j = 0; j < 2; ++j) {
          sum[i][j] += a_tile[l][ty + i * kGroupedSide] * b_tile[l][tx + j * kGroupedSide];
        }
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) {
      const int64_t at_row = row + ty + i * kGroupedSide;
      const int64_t at_column = column + tx + j * kGroupedSide;
      if (at_row >= c.m || at_column >= c.n) continue;
      Out* out = c.y + at_row * c.n + at_column;
      *out = static_cast<Out>(accumulate ? static_cast<M>(*out) + sum[i][j] : sum[i][j]);
    }
  }
}

struct GroupedCall {
  DType dtype;
  int64_t rows, experts, inner, columns;
  bool transposed;
};

// Block x is a tile of rows: those of expert 0 first, then of expert 1, …
template <typename T>
__global__ void grouped_matmul_kernel(GroupedCall c, const T* a, const T* b, const int32_t* offsets,
                                      T* y) {
  int64_t tile = blockIdx.x, expert = 0;
  for (; expert < c.experts; ++expert) {
    const int64_t tiles = divide_up(offsets[expert + 1] - offsets[expert], kGroupedTile);
    if (tile < tiles) break;
    tile -= tiles;
  }
  if (expert == c.experts) return;  // uniform over the block
  const int64_t first = offsets[expert];
  const GroupedProductTile<T, T> product{.a = a + first * c.inner,
                                         .b = b + expert * c.inner * c.columns,
                                         .m = offsets[expert + 1] - first,
                                         .n = c.columns,
                                         .k = c.inner,
                                         .a_row = c.inner,
                                         .a_inner = 1,
                                         .b_inner = c.transposed ? 1 : c.columns,
                                         .b_column = c.transposed ? c.inner : 1,
                                         .y = y + first * c.columns};
  run_grouped_tile(product, tile * kGroupedTile, int64_t{blockIdx.y} * kGroupedTile, false);
}

struct GroupedWeightCall {
  DType dtype;
  int64_t experts, m, n;
  bool accumulate;
};

// Block z is an expert.
template <typename T>
__global__ void grouped_matmul_weight_kernel(GroupedWeightCall c, const T* a, const T* b,
                                             const int32_t* offsets, MathOf<T>* dw) {
  const int64_t expert = blockIdx.z, first = offsets[expert];
  const GroupedProductTile<T, MathOf<T>> product{.a = a + first * c.m,
                                                 .b = b + first * c.n,
                                                 .m = c.m,
                                                 .n = c.n,
                                                 .k = offsets[expert + 1] - first,
                                                 .a_row = 1,
                                                 .a_inner = c.m,
                                                 .b_inner = c.n,
                                                 .b_column = 1,
                                                 .y = dw + expert * c.m * c.n};
  run_grouped_tile(product, int64_t{blockIdx.x} * kGroupedTile, int64_t{blockIdx.y} * kGroupedTile,
                   c.accumulate);
}

constexpr int64_t kMostBlocks = 65535;  // of the second and third axis of a grid

}  // namespace

std::unique_ptr<Kernel> make_cuda_grouped_matmul(const KernelRequest& request) {
  const GroupedCall c{.dtype = request.inputs[0].dtype,
                      .rows = request.inputs[0].shape[0],
                      .experts = request.inputs[1].shape[0],
                      .inner = request.inputs[0].shape[1],
                      .columns = request.outputs[0].shape[1],
                      .transposed = request.attributes.boolean("transpose_b")};
  if (divide_up(c.columns, kGroupedTile) > kMostBlocks) return nullptr;
  return make_kernel([c](const Bindings& b, Stream& stream) {
    if (c.rows * c.columns == 0) return;
    // Each expert may have one tile that is not full.
    const dim3 grid(static_cast<unsigned>(c.rows / kGroupedTile + c.experts),
                    static_cast<unsigned>(divide_up(c.columns, kGroupedTile)));
    with_floating(c.dtype, [&]<typename T>(T) {
      DLTRAIN_LAUNCH(grouped_matmul_kernel<T>, grid, dim3(kGroupedSide, kGroupedSide),
                     stream.native(), c, b.input<T>(0), b.input<T>(1), b.input<int32_t>(2),
                     b.output<T>(0));
    });
  });
}

std::unique_ptr<Kernel> make_cuda_grouped_matmul_backward_weight(const KernelRequest& request) {
  const Shape& dw = request.outputs[0].shape;
  const GroupedWeightCall c{.dtype = request.inputs[0].dtype,
                            .experts = dw[0],
                            .m = dw[1],
                            .n = dw[2],
                            .accumulate = request.accumulate};
  if (c.experts > kMostBlocks || divide_up(c.n, kGroupedTile) > kMostBlocks) return nullptr;
  return make_kernel([c](const Bindings& b, Stream& stream) {
    if (c.m * c.n == 0) return;
    const dim3 grid(static_cast<unsigned>(divide_up(c.m, kGroupedTile)),
                    static_cast<unsigned>(divide_up(c.n, kGroupedTile)),
                    static_cast<unsigned>(c.experts));
    with_floating(c.dtype, [&]<typename T>(T) {
      DLTRAIN_LAUNCH(grouped_matmul_weight_kernel<T>, grid, dim3(kGroupedSide, kGroupedSide),
                     stream.native(), c, b.input<T>(0), b.input<T>(1), b.input<int32_t>(2),
                     b.output<MathOf<T>>(0));
    });
  });
}

}  // namespace dltrain
