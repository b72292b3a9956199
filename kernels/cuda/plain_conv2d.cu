// Direct convolutions: one thread an element of y or dx, one block an element of dw. Every sum has
// a fixed order.
#include "cuda/device_code.cuh"
#include "cuda/plain_conv2d.h"

namespace dltrain {
namespace {

constexpr int kBlock = 256;

template <typename T>
__global__ void forward_kernel(PlainConv2dCall c, const T* x, const T* w, const T* bias, T* y,
                               int64_t count) {
  const int64_t per_group = c.in[2] / c.groups, outputs = c.out[2] / c.groups;
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    const int64_t co = i % c.out[2], ow = i / c.out[2] % c.out[1];
    const int64_t oh = i / (c.out[2] * c.out[1]) % c.out[0];
    const int64_t n = i / (c.out[2] * c.out[1] * c.out[0]);
    T sum = bias == nullptr ? T(0) : bias[co];
    for (int64_t kh = 0; kh < c.kernel[0]; ++kh) {
      const int64_t h = oh * c.stride[0] - c.padding[0] + kh * c.dilation[0];
      if (h < 0 || h >= c.in[0]) continue;
      for (int64_t kw = 0; kw < c.kernel[1]; ++kw) {
        const int64_t v = ow * c.stride[1] - c.padding[1] + kw * c.dilation[1];
        if (v < 0 || v >= c.in[1]) continue;
        const T* from = x + ((n * c.in[0] + h) * c.in[1] + v) * c.in[2] + co / outputs * per_group;
        const T* weight = w + ((co * c.kernel[0] + kh) * c.kernel[1] + kw) * per_group;
        for (int64_t ci = 0; ci < per_group; ++ci) sum += from[ci] * weight[ci];
      }
    }
    y[i] = elementwise<T>(c.activation, sum, sum, T(1), T(0));
  }
}

// The output position that input position `at` reaches through kernel position k, or −1.
__device__ int64_t output_position(const PlainConv2dCall& c, int axis, int64_t at, int64_t k) {
  const int64_t shifted = at + c.padding[axis] - k * c.dilation[axis];
  if (shifted < 0 || shifted % c.stride[axis] != 0) return -1;
  const int64_t out = shifted / c.stride[axis];
  return out < c.out[axis] ? out : -1;
}

template <typename T>
__global__ void input_kernel(PlainConv2dCall c, const T* dy, const T* w, T* dx, bool accumulate,
                             int64_t count) {
  const int64_t per_group = c.in[2] / c.groups, outputs = c.out[2] / c.groups;
  const int64_t weight_step = c.kernel[0] * c.kernel[1] * per_group;
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    const int64_t ci = i % c.in[2], v = i / c.in[2] % c.in[1];
    const int64_t h = i / (c.in[2] * c.in[1]) % c.in[0];
    const int64_t n = i / (c.in[2] * c.in[1] * c.in[0]);
    const int64_t first = ci / per_group * outputs;  // output channel of the group
    T sum = 0;
    for (int64_t kh = 0; kh < c.kernel[0]; ++kh) {
      const int64_t oh = output_position(c, 0, h, kh);
      if (oh < 0) continue;
      for (int64_t kw = 0; kw < c.kernel[1]; ++kw) {
        const int64_t ow = output_position(c, 1, v, kw);
        if (ow < 0) continue;
        const T* from = dy + ((n * c.out[0] + oh) * c.out[1] + ow) * c.out[2] + first;
        const T* weight =
            w + ((first * c.kernel[0] + kh) * c.kernel[1] + kw) * per_group + ci % per_group;
        for (int64_t co = 0; co < outputs; ++co) sum += from[co] * weight[co * weight_step];
      }
    }
    dx[i] = accumulate ? dx[i] + sum : sum;
  }
}

template <typename T>
__global__ void weight_kernel(PlainConv2dCall c, const T* dy, const T* x, T* dw, bool accumulate) {
  const int64_t per_group = c.in[2] / c.groups, outputs = c.out[2] / c.groups;
  const int64_t i = blockIdx.x;
  const int64_t ci = i % per_group, kw = i / per_group % c.kernel[1];
  const int64_t kh = i / (per_group * c.kernel[1]) % c.kernel[0];
  const int64_t co = i / (per_group * c.kernel[1] * c.kernel[0]);
  const int64_t channel = co / outputs * per_group + ci;
  const int64_t positions = c.samples * c.out[0] * c.out[1];
  T sum = 0;
  for (int64_t p = threadIdx.x; p < positions; p += kBlock) {
    const int64_t ow = p % c.out[1], oh = p / c.out[1] % c.out[0], n = p / (c.out[1] * c.out[0]);
    const int64_t h = oh * c.stride[0] - c.padding[0] + kh * c.dilation[0];
    const int64_t v = ow * c.stride[1] - c.padding[1] + kw * c.dilation[1];
    if (h < 0 || h >= c.in[0] || v < 0 || v >= c.in[1]) continue;
    sum += dy[p * c.out[2] + co] * x[((n * c.in[0] + h) * c.in[1] + v) * c.in[2] + channel];
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) dw[i] = accumulate ? dw[i] + sum : sum;
}

template <typename T>
struct Typed {
  static const T* in(const void* pointer) { return static_cast<const T*>(pointer); }

  static void forward(const PlainConv2dCall& c, const void* x, const void* w, const void* bias,
                      void* y, CudaStream stream) {
    const int64_t count = c.samples * c.out[0] * c.out[1] * c.out[2];
    if (count == 0) return;
    DLTRAIN_LAUNCH(forward_kernel<T>, stride_grid(count, kBlock), kBlock, stream, c, in(x), in(w),
                   in(bias), static_cast<T*>(y), count);
  }
  static void input(const PlainConv2dCall& c, const void* dy, const void* w, void* dx,
                    bool accumulate, CudaStream stream) {
    const int64_t count = c.samples * c.in[0] * c.in[1] * c.in[2];
    if (count == 0) return;
    DLTRAIN_LAUNCH(input_kernel<T>, stride_grid(count, kBlock), kBlock, stream, c, in(dy), in(w),
                   static_cast<T*>(dx), accumulate, count);
  }
  static void weight(const PlainConv2dCall& c, const void* dy, const void* x, void* dw,
                     bool accumulate, CudaStream stream) {
    const int64_t count = c.out[2] * c.kernel[0] * c.kernel[1] * (c.in[2] / c.groups);
    if (count == 0) return;
    DLTRAIN_LAUNCH(weight_kernel<T>, static_cast<unsigned>(count), kBlock, stream, c, in(dy), in(x),
                   static_cast<T*>(dw), accumulate);
  }
};

}  // namespace

void launch_plain_conv2d(const PlainConv2dCall& call, const void* x, const void* w,
                         const void* bias, void* y, CudaStream stream) {
  (call.dtype == DType::f64 ? Typed<double>::forward : Typed<float>::forward)(call, x, w, bias, y,
                                                                              stream);
}

void launch_plain_conv2d_input(const PlainConv2dCall& call, const void* dy, const void* w, void* dx,
                               bool accumulate, CudaStream stream) {
  (call.dtype == DType::f64 ? Typed<double>::input : Typed<float>::input)(call, dy, w, dx,
                                                                          accumulate, stream);
}

void launch_plain_conv2d_weight(const PlainConv2dCall& call, const void* dy, const void* x,
                                void* dw, bool accumulate, CudaStream stream) {
  (call.dtype == DType::f64 ? Typed<double>::weight : Typed<float>::weight)(call, dy, x, dw,
                                                                            accumulate, stream);
}

}  // namespace dltrain
