// A tiled matrix product: for problems that cuBLASLt does not support, and for the emulation, where
// no vendor library runs. One block per 32×32 tile of y, 2×2 elements per thread; both operands are
// staged in shared memory 16 inner positions at a time.
#include "cuda/device_code.cuh"
#include "cuda/makers.h"
#include "cuda/matmul_sizes.h"
#include "shared/elementwise.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

// y[i, j] = activation(Σ a[i, l]·b[l, j] + bias[j]); strides in elements.
struct PlainMatmulCall {
  DType dtype;  // f32 or f64
  int64_t m, n, k;
  int64_t a_row, a_inner;     // a[i, l] is at i·a_row + l·a_inner
  int64_t b_inner, b_column;  // b[l, j] is at l·b_inner + j·b_column
  ElementwiseOp activation;
  bool accumulate;
};

constexpr int kSide = 16;         // threads along each edge of a block
constexpr int kTile = 2 * kSide;  // rows and columns of a tile of y
constexpr int kInner = 16;

template <typename T>
__global__ void plain_matmul_kernel(PlainMatmulCall c, const T* a, const T* b, const T* bias,
                                    T* y) {
  __shared__ T a_tile[kInner][kTile + 1];  // padded against bank conflicts
  __shared__ T b_tile[kInner][kTile + 1];
  const int tx = static_cast<int>(threadIdx.x), ty = static_cast<int>(threadIdx.y);
  const int thread = ty * kSide + tx;
  const int64_t tiles = divide_up(c.n, kTile);
  const int64_t row = blockIdx.x / tiles * kTile, column = blockIdx.x % tiles * kTile;
  T sum[2][2] = {};
  for (int64_t inner = 0; inner < c.k; inner += kInner) {
    for (int i = thread; i < kInner * kTile; i += kSide * kSide) {
      const int l = i / kTile, at = i % kTile;
      const bool inside = inner + l < c.k;
      a_tile[l][at] =
          inside && row + at < c.m ? a[(row + at) * c.a_row + (inner + l) * c.a_inner] : T(0);
      b_tile[l][at] = inside && column + at < c.n
                          ? b[(inner + l) * c.b_inner + (column + at) * c.b_column]
                          : T(0);
    }
    __syncthreads();
    for (int l = 0; l < kInner; ++l) {
      for (int i = 0; i < 2; ++i) {
        for (int j = 0; j < 2; ++j) {
          sum[i][j] += a_tile[l][ty + i * kSide] * b_tile[l][tx + j * kSide];
        }
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) {
      const int64_t at_row = row + ty + i * kSide, at_column = column + tx + j * kSide;
      if (at_row >= c.m || at_column >= c.n) continue;
      const T x = sum[i][j] + (bias == nullptr ? T(0) : bias[at_column]);
      T* out = y + at_row * c.n + at_column;
      const T value = elementwise<T>(c.activation, x, x, T(1), T(0));
      *out = c.accumulate ? *out + value : value;
    }
  }
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
                             .m = s.m,
                             .n = s.n,
                             .k = s.k,
                             .a_row = s.transpose_a ? 1 : a_last,
                             .a_inner = s.transpose_a ? a_last : 1,
                             .b_inner = s.transpose_b ? 1 : b_last,
                             .b_column = s.transpose_b ? b_last : 1,
                             .activation = activation_of(request.attributes.text("activation")),
                             .accumulate = request.accumulate};
  return make_kernel([call, has_bias = s.has_bias](const Bindings& b, Stream& stream) {
    if (call.m * call.n == 0) return;
    const auto grid = static_cast<unsigned>(divide_up(call.m, kTile) * divide_up(call.n, kTile));
    with_wide(call.dtype, [&]<typename T>(T) {
      DLTRAIN_LAUNCH(plain_matmul_kernel<T>, grid, dim3(kSide, kSide), stream.native(), call,
                     b.input<T>(0), b.input<T>(1), has_bias ? b.input<T>(2) : nullptr,
                     b.output<T>(0));
    });
  });
}

}  // namespace dltrain
