// Max pooling over images [N, H, W, C] and its gradient (lib/ops/max_pool2d.cpp): one thread per
// output element, or per 16 bytes of adjacent channels. The gradient gathers (by input elements),
// so that overlapping windows are added in a fixed order.
#include "cuda/column_sums.cuh"
#include "cuda/makers.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

struct MaxPoolCall {
  DType dtype = DType::f32;
  int64_t samples = 0, channels = 0;
  int64_t in[2] = {}, out[2] = {};  // height, width
  int64_t kernel[2] = {}, stride[2] = {}, padding[2] = {};
};

MaxPoolCall max_pool_call(const KernelRequest& request, const Shape& x, const Shape& y) {
  MaxPoolCall c{.dtype = request.inputs[0].dtype, .samples = x[0], .channels = x[3]};
  const auto kernel = request.attributes.integers("kernel");
  const auto stride = request.attributes.integers("stride", kernel);
  const auto padding = request.attributes.integers("padding", {0, 0});
  for (size_t axis = 0; axis < 2; ++axis) {
    c.in[axis] = x[static_cast<int>(axis) + 1];
    c.out[axis] = y[static_cast<int>(axis) + 1];
    c.kernel[axis] = kernel[axis];
    c.stride[axis] = stride[axis];
    c.padding[axis] = padding[axis];
  }
  return c;
}

constexpr int kBlock = 256;

template <int W>
struct alignas(W) Positions {
  uint8_t v[W];
};

template <typename T, int W>
__global__ void max_pool_kernel(MaxPoolCall c, const T* x, T* y, uint8_t* position, int64_t count) {
  using M = MathOf<T>;
  const int64_t packs = c.channels / W;
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    const int64_t channel = i % packs * W, ow = i / packs % c.out[1];
    const int64_t oh = i / (packs * c.out[1]) % c.out[0], n = i / (packs * c.out[1] * c.out[0]);
    M greatest[W], value[W];
    Positions<W> winner = {};
    for (int j = 0; j < W; ++j) greatest[j] = -static_cast<M>(INFINITY);
    bool first = true;
    for (int kh = 0; kh < static_cast<int>(c.kernel[0]); ++kh) {
      const int64_t h = oh * c.stride[0] - c.padding[0] + kh;
      if (h < 0 || h >= c.in[0]) continue;
      for (int kw = 0; kw < static_cast<int>(c.kernel[1]); ++kw) {
        const int64_t w = ow * c.stride[1] - c.padding[1] + kw;
        if (w < 0 || w >= c.in[1]) continue;
        load_columns<W>(x + ((n * c.in[0] + h) * c.in[1] + w) * c.channels + channel, value);
        for (int j = 0; j < W; ++j) {
          if (!first && !(value[j] > greatest[j]) && value[j] == value[j]) continue;
          greatest[j] = value[j];
          winner.v[j] = static_cast<uint8_t>(kh * static_cast<int>(c.kernel[1]) + kw);
        }
        first = false;
      }
    }
    store_columns<W>(greatest, y + i * W);
    *reinterpret_cast<Positions<W>*>(position + i * W) = winner;
  }
}

// Returns the windows [begin, end) along one axis that contain index i.
__device__ void windows_of(const MaxPoolCall& c, int axis, int64_t i, int64_t& begin,
                           int64_t& end) {
  const int64_t padded = i + c.padding[axis];
  const int64_t lowest = padded - c.kernel[axis] + 1;
  begin = lowest <= 0 ? 0 : (lowest + c.stride[axis] - 1) / c.stride[axis];
  end = padded / c.stride[axis] + 1;
  if (end > c.out[axis]) end = c.out[axis];
}

template <typename T, int W>
__global__ void max_pool_backward_kernel(MaxPoolCall c, const T* dy, const uint8_t* position, T* dx,
                                         int64_t count) {
  using M = MathOf<T>;
  const int64_t packs = c.channels / W;
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    const int64_t channel = i % packs * W, w = i / packs % c.in[1];
    const int64_t h = i / (packs * c.in[1]) % c.in[0], n = i / (packs * c.in[1] * c.in[0]);
    int64_t oh_begin, oh_end, ow_begin, ow_end;
    windows_of(c, 0, h, oh_begin, oh_end);
    windows_of(c, 1, w, ow_begin, ow_end);
    M sum[W] = {}, gradient[W] = {};
    for (int64_t oh = oh_begin; oh < oh_end; ++oh) {
      for (int64_t ow = ow_begin; ow < ow_end; ++ow) {
        const int64_t kh = h + c.padding[0] - oh * c.stride[0];
        const int64_t kw = w + c.padding[1] - ow * c.stride[1];
        const int64_t at = ((n * c.out[0] + oh) * c.out[1] + ow) * c.channels + channel;
        const auto winner = *reinterpret_cast<const Positions<W>*>(position + at);
        load_columns<W>(dy + at, gradient);
        for (int j = 0; j < W; ++j) {
          if (winner.v[j] == kh * c.kernel[1] + kw) sum[j] += gradient[j];
        }
      }
    }
    store_columns<W>(sum, dx + i * W);
  }
}

// dy[i] = dx at the maximum of window i; kernel[0] = 0: positions are pixels of the image.
template <typename T, typename Position>
__global__ void max_pool_tangent_kernel(MaxPoolCall c, const T* dx, const Position* position, T* dy,
                                        int64_t count) {
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    const int64_t channel = i % c.channels, ow = i / c.channels % c.out[1];
    const int64_t oh = i / (c.channels * c.out[1]) % c.out[0];
    const int64_t n = i / (c.channels * c.out[1] * c.out[0]);
    const int64_t at = position[i], width = c.kernel[0] == 0 ? c.in[1] : c.kernel[1];
    const int64_t h = oh * c.stride[0] - c.padding[0] + at / width;
    const int64_t w = ow * c.stride[1] - c.padding[1] + at % width;
    const bool inside = h >= 0 && h < c.in[0] && w >= 0 && w < c.in[1];
    dy[i] = inside ? dx[((n * c.in[0] + h) * c.in[1] + w) * c.channels + channel] : T{};
  }
}

}  // namespace

std::unique_ptr<Kernel> make_cuda_max_pool2d(const KernelRequest& request) {
  const MaxPoolCall c = max_pool_call(request, request.inputs[0].shape, request.outputs[0].shape);
  return make_kernel([c](const Bindings& b, Stream& stream) {
    with_floating(c.dtype, [&]<typename T>(T) {
      const bool packs = rows_in_packs<T>(c.channels, {b.inputs[0], b.outputs[0], b.outputs[1]});
      with_width<T>(packs, [&]<int W>(std::integral_constant<int, W>) {
        const int64_t count = c.samples * c.out[0] * c.out[1] * c.channels / W;
        if (count == 0) return;
        DLTRAIN_LAUNCH((max_pool_kernel<T, W>), stride_grid(count, kBlock), kBlock, stream.native(),
                       c, b.input<T>(0), b.output<T>(0), b.output<uint8_t>(1), count);
      });
    });
  });
}

std::unique_ptr<Kernel> make_cuda_max_pool2d_backward(const KernelRequest& request) {
  const MaxPoolCall c = max_pool_call(request, request.outputs[0].shape, request.inputs[0].shape);
  return make_kernel([c](const Bindings& b, Stream& stream) {
    with_floating(c.dtype, [&]<typename T>(T) {
      const bool packs = rows_in_packs<T>(c.channels, {b.inputs[0], b.inputs[1], b.outputs[0]});
      with_width<T>(packs, [&]<int W>(std::integral_constant<int, W>) {
        const int64_t count = c.samples * c.in[0] * c.in[1] * c.channels / W;
        if (count == 0) return;
        DLTRAIN_LAUNCH((max_pool_backward_kernel<T, W>), stride_grid(count, kBlock), kBlock,
                       stream.native(), c, b.input<T>(0), b.input<uint8_t>(1), b.output<T>(0),
                       count);
      });
    });
  });
}

std::unique_ptr<Kernel> make_cuda_max_pool2d_tangent(const KernelRequest& request) {
  const bool adaptive = request.attributes.has("output_size");
  const Shape &x = request.inputs[0].shape, &y = request.outputs[0].shape;
  MaxPoolCall c{.dtype = request.inputs[0].dtype,
                .samples = x[0],
                .channels = x[3],
                .in = {x[1], x[2]},
                .out = {y[1], y[2]}};
  if (!adaptive) c = max_pool_call(request, x, y);
  return make_kernel([c, adaptive, count = y.elements()](const Bindings& b, Stream& stream) {
    if (count == 0) return;
    const auto launch = [&]<typename T, typename Position>(T, Position) {
      DLTRAIN_LAUNCH((max_pool_tangent_kernel<T, Position>), stride_grid(count, kBlock), kBlock,
                     stream.native(), c, b.input<T>(0), b.input<Position>(1), b.output<T>(0),
                     count);
    };
    with_floating(c.dtype, [&]<typename T>(T element) {
      adaptive ? launch(element, int32_t{}) : launch(element, uint8_t{});
    });
  });
}

}  // namespace dltrain
