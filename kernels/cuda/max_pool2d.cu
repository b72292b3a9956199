// Max pooling: one thread an output element; neighbours in a warp are neighbouring channels. The
// gradient gathers (one thread an input element), so that overlapping windows add in a fixed order.
#include "cuda/device_code.cuh"
#include "cuda/max_pool2d.h"

namespace dltrain {
namespace {

constexpr int kBlock = 256;

template <typename T>
__global__ void max_pool_kernel(MaxPoolCall c, const T* x, T* y, uint8_t* position, int64_t count) {
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    const int64_t channel = i % c.channels, ow = i / c.channels % c.out[1];
    const int64_t oh = i / (c.channels * c.out[1]) % c.out[0];
    const int64_t n = i / (c.channels * c.out[1] * c.out[0]);
    T greatest = -static_cast<T>(INFINITY);
    int winner = -1;
    for (int kh = 0; kh < static_cast<int>(c.kernel[0]); ++kh) {
      const int64_t h = oh * c.stride[0] - c.padding[0] + kh;
      if (h < 0 || h >= c.in[0]) continue;
      for (int kw = 0; kw < static_cast<int>(c.kernel[1]); ++kw) {
        const int64_t w = ow * c.stride[1] - c.padding[1] + kw;
        if (w < 0 || w >= c.in[1]) continue;
        const T value = x[((n * c.in[0] + h) * c.in[1] + w) * c.channels + channel];
        if (winner < 0 || value > greatest || value != value) {
          greatest = value;
          winner = kh * static_cast<int>(c.kernel[1]) + kw;
        }
      }
    }
    y[i] = greatest;
    position[i] = static_cast<uint8_t>(winner);
  }
}

// The windows along one axis that hold index i: first and one past the last.
__device__ void windows_of(const MaxPoolCall& c, int axis, int64_t i, int64_t& begin,
                           int64_t& end) {
  const int64_t padded = i + c.padding[axis];
  const int64_t lowest = padded - c.kernel[axis] + 1;
  begin = lowest <= 0 ? 0 : (lowest + c.stride[axis] - 1) / c.stride[axis];
  end = padded / c.stride[axis] + 1;
  if (end > c.out[axis]) end = c.out[axis];
}

template <typename T>
__global__ void max_pool_backward_kernel(MaxPoolCall c, const T* dy, const uint8_t* position, T* dx,
                                         int64_t count) {
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    const int64_t channel = i % c.channels, w = i / c.channels % c.in[1];
    const int64_t h = i / (c.channels * c.in[1]) % c.in[0];
    const int64_t n = i / (c.channels * c.in[1] * c.in[0]);
    int64_t oh_begin, oh_end, ow_begin, ow_end;
    windows_of(c, 0, h, oh_begin, oh_end);
    windows_of(c, 1, w, ow_begin, ow_end);
    T sum = 0;
    for (int64_t oh = oh_begin; oh < oh_end; ++oh) {
      for (int64_t ow = ow_begin; ow < ow_end; ++ow) {
        const int64_t kh = h + c.padding[0] - oh * c.stride[0];
        const int64_t kw = w + c.padding[1] - ow * c.stride[1];
        const int64_t at = ((n * c.out[0] + oh) * c.out[1] + ow) * c.channels + channel;
        if (position[at] == kh * c.kernel[1] + kw) sum += dy[at];
      }
    }
    dx[i] = sum;
  }
}

template <typename T>
void forward_typed(const MaxPoolCall& c, const void* x, void* y, uint8_t* position,
                   CudaStream stream) {
  const int64_t count = c.samples * c.out[0] * c.out[1] * c.channels;
  if (count == 0) return;
  DLTRAIN_LAUNCH(max_pool_kernel<T>, stride_grid(count, kBlock), kBlock, stream, c,
                 static_cast<const T*>(x), static_cast<T*>(y), position, count);
}

template <typename T>
void backward_typed(const MaxPoolCall& c, const void* dy, const uint8_t* position, void* dx,
                    CudaStream stream) {
  const int64_t count = c.samples * c.in[0] * c.in[1] * c.channels;
  if (count == 0) return;
  DLTRAIN_LAUNCH(max_pool_backward_kernel<T>, stride_grid(count, kBlock), kBlock, stream, c,
                 static_cast<const T*>(dy), position, static_cast<T*>(dx), count);
}

}  // namespace

void launch_max_pool2d(const MaxPoolCall& call, const void* x, void* y, uint8_t* position,
                       CudaStream stream) {
  (call.dtype == DType::f64 ? forward_typed<double> : forward_typed<float>)(call, x, y, position,
                                                                            stream);
}

void launch_max_pool2d_backward(const MaxPoolCall& call, const void* dy, const uint8_t* position,
                                void* dx, CudaStream stream) {
  (call.dtype == DType::f64 ? backward_typed<double> : backward_typed<float>)(call, dy, position,
                                                                              dx, stream);
}

}  // namespace dltrain
