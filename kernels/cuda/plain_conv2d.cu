// Direct convolutions, of f32 or f64 (lib/ops/conv2d.cpp has shapes and attributes): for problems
// without a cuDNN engine, and for the emulation. One thread per element of y or dx, one block per
// element of dw. Every sum has a fixed order.
#include "cuda/device_code.cuh"
#include "cuda/makers.h"
#include "ops/conv2d.h"
#include "ops/rules.h"
#include "shared/elementwise.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

struct PlainConv2dCall : Conv2dSizes {
  ElementwiseOp activation = ElementwiseOp::identity;  // of the forward
};

PlainConv2dCall plain_conv2d_call(const KernelRequest& request, const Shape& x, const Shape& w,
                                  const Shape& y) {
  return {Conv2dSizes(x, w, y, Conv2dAttributes(request.attributes))};
}

// A kernel run(bindings, stream, number) with a number of the dtype; skipped if outputs are empty.
template <typename Run>
std::unique_ptr<Kernel> make_plain_conv2d(const KernelRequest& request, Run run) {
  const DType dtype = request.inputs[0].dtype;
  if ((dtype != DType::f32 && dtype != DType::f64) || request.outputs[0].dtype != dtype) {
    return nullptr;
  }
  const bool empty = request.outputs[0].shape.elements() == 0;
  return make_kernel([=](const Bindings& b, Stream& stream) {
    if (empty) return;
    dtype == DType::f64 ? run(b, stream, double{}) : run(b, stream, 0.0f);
  });
}

constexpr int kBlock = 256;

template <typename T>
__global__ void forward_kernel(PlainConv2dCall c, const T* x, const T* w, const T* bias, T* y,
                               int64_t count) {
  const int64_t per_group = c.in_channels / c.groups, outputs = c.out_channels / c.groups;
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    const int64_t co = i % c.out_channels, ow = i / c.out_channels % c.out[1];
    const int64_t oh = i / (c.out_channels * c.out[1]) % c.out[0];
    const int64_t n = i / (c.out_channels * c.out[1] * c.out[0]);
    T sum = bias == nullptr ? T(0) : bias[co];
    for (int64_t kh = 0; kh < c.kernel[0]; ++kh) {
      const int64_t h = oh * c.stride[0] - c.padding[0] + kh * c.dilation[0];
      if (h < 0 || h >= c.in[0]) continue;
      for (int64_t kw = 0; kw < c.kernel[1]; ++kw) {
        const int64_t v = ow * c.stride[1] - c.padding[1] + kw * c.dilation[1];
        if (v < 0 || v >= c.in[1]) continue;
        const T* from =
            x + ((n * c.in[0] + h) * c.in[1] + v) * c.in_channels + co / outputs * per_group;
        const T* weight = w + ((co * c.kernel[0] + kh) * c.kernel[1] + kw) * per_group;
        for (int64_t ci = 0; ci < per_group; ++ci) sum += from[ci] * weight[ci];
      }
    }
    y[i] = elementwise<T>(c.activation, sum, sum, T(1), T(0));
  }
}

// Returns the output position that uses input position `at` with kernel position k, or −1.
__device__ int64_t output_position(const PlainConv2dCall& c, int axis, int64_t at, int64_t k) {
  const int64_t shifted = at + c.padding[axis] - k * c.dilation[axis];
  if (shifted < 0 || shifted % c.stride[axis] != 0) return -1;
  const int64_t out = shifted / c.stride[axis];
  return out < c.out[axis] ? out : -1;
}

template <typename T>
__global__ void input_kernel(PlainConv2dCall c, const T* dy, const T* w, T* dx, bool accumulate,
                             int64_t count) {
  const int64_t per_group = c.in_channels / c.groups, outputs = c.out_channels / c.groups;
  const int64_t weight_step = c.kernel[0] * c.kernel[1] * per_group;
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    const int64_t ci = i % c.in_channels, v = i / c.in_channels % c.in[1];
    const int64_t h = i / (c.in_channels * c.in[1]) % c.in[0];
    const int64_t n = i / (c.in_channels * c.in[1] * c.in[0]);
    const int64_t first = ci / per_group * outputs;  // output channel of the group
    T sum = 0;
    for (int64_t kh = 0; kh < c.kernel[0]; ++kh) {
      const int64_t oh = output_position(c, 0, h, kh);
      if (oh < 0) continue;
      for (int64_t kw = 0; kw < c.kernel[1]; ++kw) {
        const int64_t ow = output_position(c, 1, v, kw);
        if (ow < 0) continue;
        const T* from = dy + ((n * c.out[0] + oh) * c.out[1] + ow) * c.out_channels + first;
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
  const int64_t per_group = c.in_channels / c.groups, outputs = c.out_channels / c.groups;
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
    sum += dy[p * c.out_channels + co] *
           x[((n * c.in[0] + h) * c.in[1] + v) * c.in_channels + channel];
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) dw[i] = accumulate ? dw[i] + sum : sum;
}

}  // namespace

std::unique_ptr<Kernel> make_cuda_plain_conv2d(const KernelRequest& r) {
  const TensorSpec& y = r.outputs[0];
  PlainConv2dCall c = plain_conv2d_call(r, r.inputs[0].shape, r.inputs[1].shape, y.shape);
  c.activation = activation_of(r.attributes.text("activation"));
  const bool has_bias = r.inputs.size() == 3 && !is_absent(r.inputs[2]);
  return make_plain_conv2d(r, [c, has_bias, count = y.shape.elements()]<typename T>(
                                  const Bindings& b, Stream& stream, T) {
    DLTRAIN_LAUNCH(forward_kernel<T>, stride_grid(count, kBlock), kBlock, stream.native(), c,
                   b.input<T>(0), b.input<T>(1), has_bias ? b.input<T>(2) : nullptr, b.output<T>(0),
                   count);
  });
}

std::unique_ptr<Kernel> make_cuda_plain_conv2d_input(const KernelRequest& r) {
  const Shape& dx = r.outputs[0].shape;
  const PlainConv2dCall c = plain_conv2d_call(r, dx, r.inputs[1].shape, r.inputs[0].shape);
  return make_plain_conv2d(r, [c, accumulate = r.accumulate, count = dx.elements()]<typename T>(
                                  const Bindings& b, Stream& stream, T) {
    DLTRAIN_LAUNCH(input_kernel<T>, stride_grid(count, kBlock), kBlock, stream.native(), c,
                   b.input<T>(0), b.input<T>(1), b.output<T>(0), accumulate, count);
  });
}

std::unique_ptr<Kernel> make_cuda_plain_conv2d_weight(const KernelRequest& r) {
  const Shape& dw = r.outputs[0].shape;
  const PlainConv2dCall c = plain_conv2d_call(r, r.inputs[1].shape, dw, r.inputs[0].shape);
  return make_plain_conv2d(r, [c, accumulate = r.accumulate, count = dw.elements()]<typename T>(
                                  const Bindings& b, Stream& stream, T) {
    DLTRAIN_LAUNCH(weight_kernel<T>, static_cast<unsigned>(count), kBlock, stream.native(), c,
                   b.input<T>(0), b.input<T>(1), b.output<T>(0), accumulate);
  });
}

}  // namespace dltrain
