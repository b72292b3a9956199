// grouped_matmul and the gradient of its matrices (lib/ops/experts.cpp). Blocks find their expert
// by the offsets in device memory: the grid has room for any distribution of the rows, and blocks
// beyond the last tile end at once. bf16 and fp16 run on tensor cores where rows are multiples of
// 16 bytes.
#include <algorithm>

#include "cuda/makers.h"
#include "cuda/matmul_tile.cuh"
#include "cuda/tensor_tile.cuh"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

// `product` is that of one expert; its m (of gradients its k) is set by the kernel.
struct GroupedCall {
  DType dtype;
  int64_t rows, experts;
  TiledProduct product;
};

// A tile of the rows of an expert: those of expert e begin with tile offsets[e] / extent + e, which
// is after the last of those before. No rows: beyond the last tile of the expert, or of all.
struct ExpertTile {
  int64_t expert = 0, first = 0, rows = 0, row = 0;  // its first row, its rows; that of the tile

  __device__ ExpertTile(const GroupedCall& c, const int32_t* offsets, int64_t tile,
                        int64_t extent) {
    int64_t end = c.experts;  // of those that may have it
    while (end - expert > 1) {
      const int64_t middle = (expert + end) / 2;
      (offsets[middle] / extent + middle <= tile ? expert : end) = middle;
    }
    first = offsets[expert];
    row = (tile - first / extent - expert) * extent;
    rows = offsets[expert + 1] - first;
    if (row >= rows) rows = 0;
  }
};

template <typename T>
__global__ void grouped_matmul_kernel(GroupedCall c, const T* a, const T* b, const int32_t* offsets,
                                      T* y) {
  const ExpertTile tile(c, offsets, blockIdx.x, kTileExtent);
  if (tile.rows == 0) return;  // uniform over the block
  const int64_t n = c.product.n;
  c.product.m = tile.rows;
  T* out = y + tile.first * n;
  run_product_tile(c.product, a + tile.first * c.product.k, b + tile.expert * c.product.k * n,
                   tile.row, int64_t{blockIdx.y} * kTileExtent,
                   [&](int64_t row, int64_t column, MathOf<T> sum) {
                     out[row * n + column] = static_cast<T>(sum);
                   });
}

// `Transposed`: b is [experts, n, k].
template <typename T, bool Transposed>
__global__ void __launch_bounds__(kTensorThreads)
    grouped_tensor_kernel(GroupedCall c, const T* a, const T* b, const int32_t* offsets, T* y) {
  const ExpertTile tile(c, offsets, blockIdx.x, kTensorExtent);
  if (tile.rows == 0) return;  // uniform over the block
  const int64_t n = c.product.n, k = c.product.k;
  T* out = y + tile.first * n;
  run_tensor_tile(TensorOperand<T, true>{a + tile.first * k, k, tile.rows, k},
                  TensorOperand<T, Transposed>{b + tile.expert * k * n, Transposed ? k : n, n, k},
                  tile.row, int64_t{blockIdx.y} * kTensorExtent,
                  [&](int64_t row, int64_t column, const float* eight) {
                    store_elements<T, kTensorPack>(eight, out, row * n + column);
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

template <typename T>
__global__ void __launch_bounds__(kTensorThreads)
    grouped_tensor_weight_kernel(GroupedCall c, const T* a, const T* b, const int32_t* offsets,
                                 float* dw, bool accumulate) {
  const int64_t expert = blockIdx.z, first = offsets[expert], rows = offsets[expert + 1] - first;
  const int64_t m = c.product.m, n = c.product.n;
  float* out = dw + expert * m * n;
  run_tensor_tile(TensorOperand<T, false>{a + first * m, m, m, rows},
                  TensorOperand<T, false>{b + first * n, n, n, rows},
                  int64_t{blockIdx.x} * kTensorExtent, int64_t{blockIdx.y} * kTensorExtent,
                  [&](int64_t row, int64_t column, float* eight) {
                    if (accumulate) {
                      float before[kTensorPack];
                      load_elements<float, kTensorPack>(out, row * n + column, before);
                      for (int j = 0; j < kTensorPack; ++j) eight[j] = before[j] + eight[j];
                    }
                    store_elements<float, kTensorPack>(eight, out, row * n + column);
                  });
}

constexpr int kClearBlock = 256;
constexpr int64_t kMostBlocks = 65535;  // of the second and third axis of a grid

unsigned grouped_tiles(int64_t extent, int tile = kTileExtent) {
  return static_cast<unsigned>(divide_up(extent, tile));
}

// Calls f with a value of the dtype and returns true, if it is one for tensor cores and rows of
// `a` and `b` elements, in these tensors, are multiples of 16 bytes.
template <typename F>
bool with_tensor_cores(DType dtype, int64_t a, int64_t b,
                       std::initializer_list<const void*> tensors, const F& f) {
  if (dtype != DType::bf16 && dtype != DType::f16) return false;
  if (a % kTensorPack != 0 || b % kTensorPack != 0) return false;
  if (!std::ranges::all_of(tensors, is_pack_aligned)) return false;
  return dtype == DType::bf16 ? f(DeviceBf16{}) : f(DeviceF16{});
}

template <typename T>
bool launch_tensor(const GroupedCall& c, bool transposed, const Bindings& b, Stream& stream) {
  const auto kernel = transposed ? grouped_tensor_kernel<T, true> : grouped_tensor_kernel<T, false>;
  if (!allow_shared(kernel, kTensorShared)) return false;
  const dim3 grid(static_cast<unsigned>(c.rows / kTensorExtent + c.experts),
                  grouped_tiles(c.product.n, kTensorExtent));
  DLTRAIN_LAUNCH_SHARED(kernel, grid, kTensorThreads, kTensorShared, stream.native(), c,
                        b.input<T>(0), b.input<T>(1), b.input<int32_t>(2), b.output<T>(0));
  return true;
}

template <typename T>
bool launch_tensor_weight(const GroupedCall& c, bool accumulate, const Bindings& b,
                          Stream& stream) {
  if (!allow_shared(grouped_tensor_weight_kernel<T>, kTensorShared)) return false;
  const dim3 grid(grouped_tiles(c.product.m, kTensorExtent),
                  grouped_tiles(c.product.n, kTensorExtent), static_cast<unsigned>(c.experts));
  DLTRAIN_LAUNCH_SHARED(grouped_tensor_weight_kernel<T>, grid, kTensorThreads, kTensorShared,
                        stream.native(), c, b.input<T>(0), b.input<T>(1), b.input<int32_t>(2),
                        b.output<float>(0), accumulate);
  return true;
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
  return make_kernel([c, transposed, all_in_use](const Bindings& b, Stream& stream) {
    if (c.rows * c.product.n == 0) return;
    const bool launched = with_tensor_cores(
        c.dtype, c.product.k, c.product.n, {b.inputs[0], b.inputs[1], b.outputs[0]},
        [&]<typename T>(T) { return launch_tensor<T>(c, transposed, b, stream); });
    with_floating(c.dtype, [&]<typename T>(T) {
      if (!launched) {
        // Each expert may have one tile that is not full.
        const dim3 grid(static_cast<unsigned>(c.rows / kTileExtent + c.experts),
                        grouped_tiles(c.product.n));
        DLTRAIN_LAUNCH(grouped_matmul_kernel<T>, grid, dim3(kTileSide, kTileSide), stream.native(),
                       c, b.input<T>(0), b.input<T>(1), b.input<int32_t>(2), b.output<T>(0));
      }
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
    const bool launched = with_tensor_cores(
        c.dtype, c.product.m, c.product.n, {b.inputs[0], b.inputs[1], b.outputs[0]},
        [&]<typename T>(T) { return launch_tensor_weight<T>(c, accumulate, b, stream); });
    if (launched) return;
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
