// grouped_matmul and the gradient of its matrices (lib/ops/experts.cpp). Blocks find their expert
// by the offsets in device memory: the grid has room for any distribution of the rows, and blocks
// beyond the last tile end at once.
#include "cuda/makers.h"
#include "cuda/matmul_tile.cuh"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

// `product` is that of one expert; its m is set by the kernel.
struct GroupedCall {
  DType dtype;
  int64_t rows, experts;
  TiledProduct product;
};

// Block x is a tile of rows: those of expert 0 first, then of expert 1, …
template <typename T>
__global__ void grouped_matmul_kernel(GroupedCall c, const T* a, const T* b, const int32_t* offsets,
                                      T* y) {
  int64_t tile = blockIdx.x, expert = 0;
  for (; expert < c.experts; ++expert) {
    const int64_t tiles = divide_up(offsets[expert + 1] - offsets[expert], kTileExtent);
    if (tile < tiles) break;
    tile -= tiles;
  }
  if (expert == c.experts) return;  // uniform over the block
  const int64_t first = offsets[expert], n = c.product.n;
  c.product.m = offsets[expert + 1] - first;
  T* out = y + first * n;
  run_product_tile(c.product, a + first * c.product.k, b + expert * c.product.k * n,
                   tile * kTileExtent, int64_t{blockIdx.y} * kTileExtent,
                   [&](int64_t row, int64_t column, MathOf<T> sum) {
                     out[row * n + column] = static_cast<T>(sum);
                   });
}

// Rows after those of the last expert.
template <typename T>
__global__ void clear_rest_kernel(GroupedCall c, const int32_t* offsets, T* y) {
  const int64_t first = offsets[c.experts] * c.product.n, end = c.rows * c.product.n;
  for (int64_t i = first + thread_index(); i < end; i += thread_count()) {
    y[i] = static_cast<T>(MathOf<T>(0));
  }
}

// Block z is an expert. `product` has no k.
template <typename T>
__global__ void grouped_matmul_weight_kernel(GroupedCall c, const T* a, const T* b,
                                             const int32_t* offsets, MathOf<T>* dw,
                                             bool accumulate) {
  const int64_t expert = blockIdx.z, first = offsets[expert], m = c.product.m, n = c.product.n;
  c.product.k = offsets[expert + 1] - first;
  MathOf<T>* out = dw + expert * m * n;
  run_product_tile(c.product, a + first * m, b + first * n, int64_t{blockIdx.x} * kTileExtent,
                   int64_t{blockIdx.y} * kTileExtent,
                   [&](int64_t row, int64_t column, MathOf<T> sum) {
                     MathOf<T>& to = out[row * n + column];
                     to = accumulate ? to + sum : sum;
                   });
}

constexpr int kClearBlock = 256;
constexpr int64_t kMostBlocks = 65535;  // of the second and third axis of a grid

unsigned grouped_tiles(int64_t extent) {
  return static_cast<unsigned>(divide_up(extent, kTileExtent));
}

}  // namespace

std::unique_ptr<Kernel> make_cuda_grouped_matmul(const KernelRequest& request) {
  const bool transposed = request.attributes.boolean("transpose_b");
  const int64_t k = request.inputs[0].shape[1], n = request.outputs[0].shape[1];
  const GroupedCall c{.dtype = request.inputs[0].dtype,
                      .rows = request.inputs[0].shape[0],
                      .experts = request.inputs[1].shape[0],
                      .product = {.m = 0,
                                  .n = n,
                                  .k = k,
                                  .a_row = k,
                                  .a_inner = 1,
                                  .b_inner = transposed ? 1 : n,
                                  .b_column = transposed ? k : 1}};
  if (grouped_tiles(n) > kMostBlocks) return nullptr;
  const bool all_in_use = request.attributes.integer("rows") == 0;
  return make_kernel([c, all_in_use](const Bindings& b, Stream& stream) {
    if (c.rows * c.product.n == 0) return;
    // Each expert may have one tile that is not full.
    const dim3 grid(static_cast<unsigned>(c.rows / kTileExtent + c.experts),
                    grouped_tiles(c.product.n));
    with_floating(c.dtype, [&]<typename T>(T) {
      DLTRAIN_LAUNCH(grouped_matmul_kernel<T>, grid, dim3(kTileSide, kTileSide), stream.native(), c,
                     b.input<T>(0), b.input<T>(1), b.input<int32_t>(2), b.output<T>(0));
      if (all_in_use) return;
      DLTRAIN_LAUNCH(clear_rest_kernel<T>, stride_grid(c.rows * c.product.n, kClearBlock),
                     kClearBlock, stream.native(), c, b.input<int32_t>(2), b.output<T>(0));
    });
  });
}

std::unique_ptr<Kernel> make_cuda_grouped_matmul_backward_weight(const KernelRequest& request) {
  const Shape& dw = request.outputs[0].shape;
  const int64_t m = dw[1], n = dw[2];
  const GroupedCall c{
      .dtype = request.inputs[0].dtype,
      .rows = request.inputs[0].shape[0],
      .experts = dw[0],
      .product = {.m = m, .n = n, .k = 0, .a_row = 1, .a_inner = m, .b_inner = n, .b_column = 1}};
  if (c.experts > kMostBlocks || grouped_tiles(n) > kMostBlocks) return nullptr;
  return make_kernel([c, accumulate = request.accumulate](const Bindings& b, Stream& stream) {
    if (c.product.m * c.product.n == 0) return;
    const dim3 grid(grouped_tiles(c.product.m), grouped_tiles(c.product.n),
                    static_cast<unsigned>(c.experts));
    with_floating(c.dtype, [&]<typename T>(T) {
      DLTRAIN_LAUNCH(grouped_matmul_weight_kernel<T>, grid, dim3(kTileSide, kTileSide),
                     stream.native(), c, b.input<T>(0), b.input<T>(1), b.input<int32_t>(2),
                     b.output<MathOf<T>>(0), accumulate);
    });
  });
}

}  // namespace dltrain
