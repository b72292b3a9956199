// conv2d for few channels, where libraries leave most vector lanes unused: here lanes are samples.
//
// Images are transposed into [height, width, channel, sample] (a block of samples at a time, in the
// workspace), so that one output pixel of a block is a small product: weights, one broadcast value
// each, times vectors of samples. For a row of the window, positions and channels are adjacent in
// the weight and in the image, and positions outside the image are skipped. The input gradient is
// the same with the weight rotated by 180° (stride 1); the weight gradient multiplies vectors of
// samples by vectors of samples and adds up their lanes at the end.
#include "cpu/conv2d_lanes.h"

#include <algorithm>
#include <array>
#include <utility>

#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"
#include "ops/rules.h"
#include "shared/make_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/conv2d_lanes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dltrain::HWY_NAMESPACE {
namespace {

int64_t block_samples() {
  return tile_width();
}

// As gather_lane_row.
void gather_row(const float* x, int64_t samples, int64_t sample_stride, int64_t row_length,
                float* to) {
  const int64_t block = tile_width();
  transpose(x, samples, row_length, sample_stride, to, block);
  for (int64_t i = 0; samples < block && i < row_length; ++i) {
    std::fill(to + i * block + samples, to + (i + 1) * block, 0.0f);
  }
}

// Computes one row of outputs of one block. `x` is the transposed image, w [out, kh, kw, in], `row`
// takes [out_width, out, block].
void forward_row(const LaneConvolution& g, const float* x, const float* w, const float* bias,
                 int64_t oh, float* row) {
  const int64_t block = tile_width(), window = g.window();
  const int64_t h0 = oh * g.stride[0] - g.padding[0];
  std::array<TileSegment, kMaxLaneWindow> segments;
  for (int64_t ow = 0; ow < g.out[1]; ++ow) {
    const int64_t w0 = ow * g.stride[1] - g.padding[1];
    int count = 0;
    const auto add = [&](int64_t kh, int64_t kw, int64_t taps) {
      const int64_t h = h0 + kh * g.dilation[0], v = w0 + kw * g.dilation[1];
      segments[static_cast<size_t>(count++)] = {w + (kh * g.kernel[1] + kw) * g.in_channels,
                                                x + (h * g.in[1] + v) * g.in_channels * block,
                                                taps * g.in_channels};
    };
    for (int64_t kh = 0; kh < g.kernel[0]; ++kh) {
      const int64_t h = h0 + kh * g.dilation[0];
      if (h < 0 || h >= g.in[0]) continue;
      if (g.dilation[1] == 1) {
        const int64_t first = std::max<int64_t>(0, -w0);
        const int64_t last = std::min(g.kernel[1], g.in[1] - w0);
        if (first < last) add(kh, first, last - first);
        continue;
      }
      for (int64_t kw = 0; kw < g.kernel[1]; ++kw) {
        const int64_t v = w0 + kw * g.dilation[1];
        if (v >= 0 && v < g.in[1]) add(kh, kw, 1);
      }
    }
    for (int64_t o = 0; o < g.out_channels; o += kTileRows) {
      const int64_t rows = std::min<int64_t>(kTileRows, g.out_channels - o);
      const TileOutput out{.bias = bias != nullptr ? bias + o : nullptr,
                           .c = row + (ow * g.out_channels + o) * block,
                           .ldc = block,
                           .relu = g.relu};
      with_constant<kTileRows>(rows, [&](auto fixed) HWY_ATTR {
        run_tile<fixed>(segments.data(), count, window, 1, block, out);
      });
      for (int s = 0; s < count; ++s) segments[static_cast<size_t>(s)].a += rows * window;
    }
  }
}

// Transposes the row back to [samples, …, row_length].
void scatter_row(const float* row, int64_t samples, int64_t sample_stride, int64_t row_length,
                 float* y) {
  transpose(row, row_length, samples, tile_width(), y, sample_stride);
}

}  // namespace
}  // namespace dltrain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dltrain {
namespace {
HWY_EXPORT(block_samples);
HWY_EXPORT(gather_row);
HWY_EXPORT(forward_row);
HWY_EXPORT(scatter_row);
}  // namespace

int64_t lane_block() {
  return HWY_DYNAMIC_DISPATCH(block_samples)();
}

LaneConvolution lane_convolution(const Shape& x, const Shape& w, const Shape& y,
                                 const Attributes& attributes) {
  return {Conv2dSizes(x, w, y, Conv2dAttributes(attributes)),
          attributes.text("activation") == "relu"};
}

bool lanes_suit(const KernelRequest& request, const LaneConvolution& g) {
  const int64_t filled = ceil_div(g.samples, lane_block()) * lane_block();
  return computes_in_f32(request) && g.groups == 1 && g.kernel[0] * g.kernel[1] <= kMaxLaneWindow &&
         4 * g.samples >= 3 * filled && g.out[0] * g.out[1] > 0;
}

void gather_lane_row(const float* x, int64_t samples, int64_t sample_stride, int64_t row_length,
                     float* to) {
  HWY_DYNAMIC_DISPATCH(gather_row)(x, samples, sample_stride, row_length, to);
}

void gather_lane_image(const float* x, int64_t samples, int64_t height, int64_t row_length,
                       int64_t padded_height, int64_t padded_row, int64_t top, int64_t left,
                       float* to) {
  const int64_t block = lane_block();
  const auto gather = HWY_DYNAMIC_DISPATCH(gather_row);
  parallel_each(ceil_div(samples, block) * height, 1, [&](int64_t at) {
    const int64_t b = at / height, h = at % height, first = b * block;
    gather(x + (first * height + h) * row_length, std::min(block, samples - first),
           height * row_length, row_length,
           to + ((b * padded_height + top + h) * padded_row + left) * block);
  });
}

namespace {

// The forward, and the input gradient as a forward.
class LaneForward {
 public:
  explicit LaneForward(const LaneConvolution& g)
      : g_(g), block_(lane_block()), blocks_(ceil_div(g.samples, block_)), parts_(thread_count()) {}

  int64_t workspace_floats() const { return image_floats() + parts_ * row_floats(); }

  void run(const float* x, const float* w, const float* bias, float* y, float* workspace) const {
    gather_lane_image(x, g_.samples, g_.in[0], g_.in[1] * g_.in_channels, g_.in[0],
                      g_.in[1] * g_.in_channels, 0, 0, workspace);
    const auto forward = HWY_DYNAMIC_DISPATCH(forward_row);
    const auto scatter = HWY_DYNAMIC_DISPATCH(scatter_row);
    const int64_t y_row = g_.out[1] * g_.out_channels;
    parallel_parts(blocks_ * g_.out[0], parts_, [&](int64_t begin, int64_t end, int64_t part) {
      float* row = workspace + image_floats() + part * row_floats();
      for (int64_t at = begin; at < end; ++at) {
        const int64_t b = at / g_.out[0], oh = at % g_.out[0], first = b * block_;
        forward(g_, workspace + b * (image_floats() / blocks_), w, bias, oh, row);
        scatter(row, std::min(block_, g_.samples - first), g_.out[0] * y_row, y_row,
                y + (first * g_.out[0] + oh) * y_row);
      }
    });
  }

 private:
  int64_t image_floats() const { return blocks_ * block_ * g_.in[0] * g_.in[1] * g_.in_channels; }
  int64_t row_floats() const { return block_ * g_.out[1] * g_.out_channels; }

  LaneConvolution g_;
  int64_t block_, blocks_, parts_;
};

// dx is dy convolved with the weight rotated by 180° and its channels swapped (stride 1).
LaneConvolution transposed_convolution(const LaneConvolution& g) {
  LaneConvolution t = g;
  std::swap(t.in, t.out);
  std::swap(t.in_channels, t.out_channels);
  for (int i = 0; i < 2; ++i) t.padding[i] = g.dilation[i] * (g.kernel[i] - 1) - g.padding[i];
  return t;
}

}  // namespace

std::unique_ptr<Kernel> make_conv2d_lanes(const KernelRequest& request) {
  const auto g = lane_convolution(request.inputs[0].shape, request.inputs[1].shape,
                                  request.outputs[0].shape, request.attributes);
  const std::string activation = request.attributes.text("activation");
  const bool few = g.in_channels < 16 && g.out_channels <= 16;
  if (!few || !lanes_suit(request, g) || !(activation.empty() || activation == "relu"))
    return nullptr;
  const LaneForward forward(g);
  return make_kernel(
      [forward](const Bindings& b, Stream&) {
        forward.run(b.input<float>(0), b.input<float>(1), b.input<float>(2), b.output<float>(0),
                    static_cast<float*>(b.workspace));
      },
      static_cast<size_t>(forward.workspace_floats()) * sizeof(float));
}

std::unique_ptr<Kernel> make_conv2d_backward_input_lanes(const KernelRequest& request) {
  const auto g = lane_convolution(request.outputs[0].shape, request.inputs[1].shape,
                                  request.inputs[0].shape, request.attributes);
  const bool dense = g.stride[0] == 1 && g.stride[1] == 1;
  if (g.in_channels > 8 || !lanes_suit(request, g) || !dense) return nullptr;
  for (int i = 0; i < 2; ++i) {
    if (g.padding[i] > g.dilation[i] * (g.kernel[i] - 1)) return nullptr;
  }
  const LaneForward forward(transposed_convolution(g));
  const int64_t floats = forward.workspace_floats() + g.out_channels * g.window();
  return make_kernel(
      [g, forward](const Bindings& b, Stream&) {
        auto* workspace = static_cast<float*>(b.workspace);
        float* flipped_weight = workspace + forward.workspace_floats();
        const float* w = b.input<float>(1);
        const int64_t kernel_size = g.kernel[0] * g.kernel[1];
        for (int64_t o = 0; o < g.out_channels; ++o) {
          for (int64_t p = 0; p < kernel_size; ++p) {
            for (int64_t c = 0; c < g.in_channels; ++c) {
              flipped_weight[(c * kernel_size + kernel_size - 1 - p) * g.out_channels + o] =
                  w[(o * kernel_size + p) * g.in_channels + c];
            }
          }
        }
        forward.run(b.input<float>(0), flipped_weight, nullptr, b.output<float>(0), workspace);
      },
      static_cast<size_t>(floats) * sizeof(float));
}

}  // namespace dltrain
#endif
