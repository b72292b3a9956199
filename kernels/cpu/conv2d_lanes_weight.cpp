// conv2d_backward_weight with samples in the vector lanes (see conv2d_lanes.cpp): vectors of
// samples of dy times vectors of samples of x, whose lanes are added up at the end.
#include <algorithm>
#include <cstring>

#include "cpu/conv2d_lanes.h"
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"
#include "shared/make_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/conv2d_lanes_weight.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dltrain::HWY_NAMESPACE {
namespace {

// sums[m][i] (a vector each) += Σ over the row of dy[·][m]·x[·][i], for kRows output channels and
// kPlaces adjacent values of the window.
template <int kRows, int kColumns>
HWY_INLINE void weight_tile(const float* dy, int64_t dy_step, const float* x, int64_t x_step,
                            int64_t pixels, float* sums, int64_t sums_stride) {
  const TileTag d;
  const int64_t lanes = tile_lanes(), block = tile_width();
  TileVec sum[kRows][kColumns];
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 8
    for (int i = 0; i < kColumns; ++i) {
      sum[m][i] = hn::LoadU(d, sums + m * sums_stride + i * lanes);
    }
  }
  for (int64_t p = 0; p < pixels; ++p) {
#pragma GCC unroll 1
    for (int64_t v = 0; v < block; v += lanes) {
      TileVec right[kColumns];
#pragma GCC unroll 8
      for (int i = 0; i < kColumns; ++i) right[i] = hn::LoadU(d, x + i * block + v);
#pragma GCC unroll 8
      for (int m = 0; m < kRows; ++m) {
        const TileVec left = hn::LoadU(d, dy + m * block + v);
#pragma GCC unroll 8
        for (int i = 0; i < kColumns; ++i) sum[m][i] = hn::MulAdd(left, right[i], sum[m][i]);
      }
    }
    dy += dy_step;
    x += x_step;
  }
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 8
    for (int i = 0; i < kColumns; ++i) {
      hn::StoreU(sum[m][i], d, sums + m * sums_stride + i * lanes);
    }
  }
}

constexpr int kWeightColumns = DLTRAIN_AVX512() ? 4 : 2;

// Adds one row of one block to the lane sums of the whole weight, [out, window] vectors. `x` is the
// transposed image with its padding, dy the transposed row [out_width, out, block].
void weight_row(const LaneConvolution& g, const float* x, const float* dy, int64_t oh,
                float* sums) {
  const int64_t block = tile_width(), lanes = tile_lanes(), window = g.window();
  const int64_t padded_width = g.in[1] + 2 * g.padding[1];
  // Number of values of the window that are contiguous in the image.
  const int64_t run = g.dilation[1] == 1 ? g.kernel[1] * g.in_channels : g.in_channels;
  const int64_t tiles = (run + kWeightColumns - 1) / kWeightColumns;
  for (int64_t first = 0; first < window; first += run) {
    const int64_t kh = first / (g.kernel[1] * g.in_channels);
    const int64_t kw = first / g.in_channels % g.kernel[1];
    const int64_t h = oh * g.stride[0] + kh * g.dilation[0];
    const float* image = x + (h * padded_width + kw * g.dilation[1]) * g.in_channels * block;
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t from = run * t / tiles, columns = run * (t + 1) / tiles - from;
      for (int64_t o = 0; o < g.out_channels; o += kTileRows) {
        const int64_t rows = std::min<int64_t>(kTileRows, g.out_channels - o);
        with_constant<kTileRows>(rows, [&](auto fixed_rows) HWY_ATTR {
          with_constant<kWeightColumns>(columns, [&](auto fixed_columns) HWY_ATTR {
            weight_tile<fixed_rows, fixed_columns>(
                dy + o * block, g.out_channels * block, image + from * block,
                g.stride[1] * g.in_channels * block, g.out[1],
                sums + (o * window + first + from) * lanes, window * lanes);
          });
        });
      }
    }
  }
}

int64_t vector_lanes() {
  return tile_lanes();
}

// partial[i] = sum of the lanes of sums[i].
void add_lanes(const float* sums, int64_t count, float* partial) {
  const TileTag d;
  const int64_t lanes = tile_lanes();
  for (int64_t i = 0; i < count; ++i) {
    partial[i] = hn::GetLane(hn::SumOfLanes(d, hn::LoadU(d, sums + i * lanes)));
  }
}

}  // namespace
}  // namespace dltrain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dltrain {
namespace {
HWY_EXPORT(vector_lanes);
HWY_EXPORT(weight_row);
HWY_EXPORT(add_lanes);

class Conv2dBackwardWeightLanes {
 public:
  // Number of ranges of rows with separate sums, independent of the number of threads.
  static constexpr int64_t kRanges = 8;
  static constexpr int64_t kMaxWeights = 8192;  // 512 KiB of lane sums per thread

  Conv2dBackwardWeightLanes(const LaneConvolution& g, bool accumulate)
      : g_(g),
        accumulate_(accumulate),
        block_(lane_block()),
        lanes_(HWY_DYNAMIC_DISPATCH(vector_lanes)()),
        blocks_(ceil_div(g.samples, block_)),
        parts_(std::min<int64_t>(thread_count(), kRanges)) {}

  size_t workspace_bytes() const {
    return static_cast<size_t>(image_floats() + kRanges * weights() +
                               parts_ * (row_floats() + weights() * lanes_)) *
           sizeof(float);
  }

  void run(const Bindings& b) {
    dy_ = b.input<float>(0);
    float* dw = b.output<float>(0);
    image_ = static_cast<float*>(b.workspace);
    partial_ = image_ + image_floats();
    per_part_ = partial_ + kRanges * weights();
    if (g_.padding[0] + g_.padding[1] > 0) {
      std::memset(image_, 0, static_cast<size_t>(image_floats()) * sizeof(float));
    }
    gather_lane_image(b.input<float>(1), g_.samples, g_.in[0], g_.in[1] * g_.in_channels,
                      padded_height(), padded_width() * g_.in_channels, g_.padding[0],
                      g_.padding[1] * g_.in_channels, image_);
    parallel_parts(kRanges, parts_, [&](int64_t begin, int64_t end, int64_t part) {
      for (int64_t range = begin; range < end; ++range) run_range(range, part);
    });
    for (int64_t i = 0; i < weights(); ++i) {
      float sum = partial_[i];
      for (int64_t r = 1; r < kRanges; ++r) sum += partial_[r * weights() + i];
      dw[i] = accumulate_ ? dw[i] + sum : sum;
    }
  }

 private:
  void run_range(int64_t range, int64_t part) const {
    const auto add_row = HWY_DYNAMIC_DISPATCH(weight_row);
    float* row = per_part_ + part * (row_floats() + weights() * lanes_);
    float* sums = row + row_floats();
    std::fill_n(sums, weights() * lanes_, 0.0f);
    const int64_t rows = blocks_ * g_.out[0], dy_row = g_.out[1] * g_.out_channels;
    for (int64_t at = rows * range / kRanges; at < rows * (range + 1) / kRanges; ++at) {
      const int64_t b = at / g_.out[0], oh = at % g_.out[0], first = b * block_;
      gather_lane_row(dy_ + (first * g_.out[0] + oh) * dy_row, std::min(block_, g_.samples - first),
                      g_.out[0] * dy_row, dy_row, row);
      add_row(g_, image_ + b * (image_floats() / blocks_), row, oh, sums);
    }
    HWY_DYNAMIC_DISPATCH(add_lanes)(sums, weights(), partial_ + range * weights());
  }

  int64_t weights() const { return g_.out_channels * g_.window(); }
  int64_t padded_height() const { return g_.in[0] + 2 * g_.padding[0]; }
  int64_t padded_width() const { return g_.in[1] + 2 * g_.padding[1]; }
  int64_t image_floats() const {
    return blocks_ * block_ * padded_height() * padded_width() * g_.in_channels;
  }
  int64_t row_floats() const { return block_ * g_.out[1] * g_.out_channels; }

  LaneConvolution g_;
  bool accumulate_;
  int64_t block_, lanes_, blocks_, parts_;
  const float* dy_ = nullptr;
  float *image_ = nullptr, *partial_ = nullptr, *per_part_ = nullptr;
};

}  // namespace

std::unique_ptr<Kernel> make_conv2d_backward_weight_lanes(const KernelRequest& request) {
  const auto g = lane_convolution(request.inputs[1].shape, request.outputs[0].shape,
                                  request.inputs[0].shape, request.attributes);
  const bool few = g.in_channels < 16 && g.out_channels < 16;
  if (!few || !lanes_suit(request, g) ||
      g.out_channels * g.window() > Conv2dBackwardWeightLanes::kMaxWeights) {
    return nullptr;
  }
  return make_call_kernel<Conv2dBackwardWeightLanes>(g, request.accumulate);
}

}  // namespace dltrain
#endif
