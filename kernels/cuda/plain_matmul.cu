// A tiled matrix product: for problems that cuBLASLt does not support, and for the emulation, where
// no vendor library runs. One block for each tile of y (matmul_tile.cuh).
#include "cuda/makers.h"
#include "cuda/matmul_sizes.h"
#include "cuda/matmul_tile.cuh"
#include "shared/elementwise.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

// y = activation(a·b + bias)
struct PlainMatmulCall {
  DType dtype;  // f32 or f64
  TiledProduct product;
  ElementwiseOp activation;
  bool accumulate;
};

template <typename T>
__global__ void plain_matmul_kernel(PlainMatmulCall c, const T* a, const T* b, const T* bias,
                                    T* y) {
  const int64_t tiles = divide_up(c.product.n, kTileExtent);
  run_product_tile(c.product, a, b, blockIdx.x / tiles * kTileExtent,
                   blockIdx.x % tiles * kTileExtent, [&](int64_t row, int64_t column, T sum) {
                     const T x = sum + (bias == nullptr ? T(0) : bias[column]);
                     T* out = y + row * c.product.n + column;
                     const T value = elementwise<T>(c.activation, x, x, T(1), T(0));
                     *out = c.accumulate ? *out + value : value;
                   });
}

}  // namespace

std::unique_ptr<Kernel> make_cuda_plain_matmul(const KernelRequest& request) {
  const DType dtype = request.inputs[0].dtype;
  if ((dtype != DType::f32 && dtype != DType::f64) || request.outputs[0].dtype != dtype) {
    return nullptr;
  }
  const MatmulSizes s(request);
  const int64_t a_last = request.inputs[0].shape[-1], b_last = request.inputs[1].shape[1];
  const PlainMatmulCall call{.dtype = dtype,
                             .product = {.m = s.m,
                                         .n = s.n,
                                         .k = s.k,
                                         .a_row = s.transpose_a ? 1 : a_last,
                                         .a_inner = s.transpose_a ? a_last : 1,
                                         .b_inner = s.transpose_b ? 1 : b_last,
                                         .b_column = s.transpose_b ? b_last : 1},
                             .activation = activation_of(request.attributes.text("activation")),
                             .accumulate = request.accumulate};
  return make_kernel([call, has_bias = s.has_bias](const Bindings& b, Stream& stream) {
    const TiledProduct& p = call.product;
    if (p.m * p.n == 0) return;
    const auto grid =
        static_cast<unsigned>(divide_up(p.m, kTileExtent) * divide_up(p.n, kTileExtent));
    with_wide(call.dtype, [&]<typename T>(T) {
      DLTRAIN_LAUNCH(plain_matmul_kernel<T>, grid, dim3(kTileSide, kTileSide), stream.native(),
                     call, b.input<T>(0), b.input<T>(1), has_bias ? b.input<T>(2) : nullptr,
                     b.output<T>(0));
    });
  });
}

}  // namespace dltrain
