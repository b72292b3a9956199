// A tiled matrix product: one block a 32×32 tile of y, each thread 2×2 of it, both operands staged
// through shared memory 16 inner positions at a time.
#include "cuda/device_code.cuh"
#include "cuda/plain_matmul.h"

namespace dltrain {
namespace {

constexpr int kSide = 16;         // threads along each edge of a block
constexpr int kTile = 2 * kSide;  // of y
constexpr int kInner = 16;

template <typename T>
__global__ void plain_matmul_kernel(PlainMatmulCall c, const T* a, const T* b, const T* bias,
                                    T* y) {
  __shared__ T a_tile[kInner][kTile + 1];  // padded: neighbouring rows in other banks
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

template <typename T>
void matmul_typed(const PlainMatmulCall& c, const void* a, const void* b, const void* bias, void* y,
                  CudaStream stream) {
  const auto grid = static_cast<unsigned>(divide_up(c.m, kTile) * divide_up(c.n, kTile));
  DLTRAIN_LAUNCH(plain_matmul_kernel<T>, grid, dim3(kSide, kSide), stream, c,
                 static_cast<const T*>(a), static_cast<const T*>(b), static_cast<const T*>(bias),
                 static_cast<T*>(y));
}

}  // namespace

void launch_plain_matmul(const PlainMatmulCall& call, const void* a, const void* b,
                         const void* bias, void* y, CudaStream stream) {
  if (call.m * call.n == 0) return;
  (call.dtype == DType::f64 ? matmul_typed<double> : matmul_typed<float>)(call, a, b, bias, y,
                                                                          stream);
}

}  // namespace dltrain
