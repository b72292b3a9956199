// max_pool2d and max_pool2d_backward over NHWC, vectorised along the channels. The backward
// gathers: every input pixel adds up the windows that it won, so no two threads write one element.
#include <algorithm>
#include <limits>

#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"

#ifndef DLTRAIN_CPU_MAX_POOL2D_ONCE
#define DLTRAIN_CPU_MAX_POOL2D_ONCE
namespace dltrain {
namespace {

struct PoolGeometry {
  int64_t height, width, channels;  // of the input
  int64_t out_height, out_width;
  int64_t kernel[2], stride[2], padding[2];
};

}  // namespace
}  // namespace dltrain
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/max_pool2d.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace dltrain {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// One row of outputs: `row` counts over samples and output rows.
void pool_row(const PoolGeometry& g, const float* x, float* y, uint8_t* position, int64_t row) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<uint8_t, decltype(di)> du8;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t sample = row / g.out_height, oh = row % g.out_height;
  const float* image = x + sample * g.height * g.width * g.channels;
  const int64_t h0 = oh * g.stride[0] - g.padding[0];
  for (int64_t ow = 0; ow < g.out_width; ++ow) {
    const int64_t w0 = ow * g.stride[1] - g.padding[1];
    const int64_t kh0 = std::max<int64_t>(0, -h0), kh1 = std::min(g.kernel[0], g.height - h0);
    const int64_t kw0 = std::max<int64_t>(0, -w0), kw1 = std::min(g.kernel[1], g.width - w0);
    const int64_t out = (row * g.out_width + ow) * g.channels;
    for (int64_t c = 0; c < g.channels; c += lanes) {
      const size_t n = static_cast<size_t>(std::min(lanes, g.channels - c));
      const auto mask = hn::FirstN(d, n);
      auto best = hn::Set(d, -std::numeric_limits<float>::infinity());
      auto winner = hn::Set(di, static_cast<int32_t>(kh0 * g.kernel[1] + kw0));
      for (int64_t kh = kh0; kh < kh1; ++kh) {
        const float* line = image + ((h0 + kh) * g.width + w0) * g.channels + c;
        for (int64_t kw = kw0; kw < kw1; ++kw) {
          const auto v = hn::MaskedLoad(mask, d, line + kw * g.channels);
          const auto wins = hn::Or(hn::Gt(v, best), hn::IsNaN(v));
          best = hn::IfThenElse(wins, v, best);
          winner = hn::IfThenElse(hn::RebindMask(di, wins),
                                  hn::Set(di, static_cast<int32_t>(kh * g.kernel[1] + kw)), winner);
        }
      }
      hn::BlendedStore(best, mask, d, y + out + c);
      hn::BlendedStore(hn::DemoteTo(du8, winner), hn::FirstN(du8, n), du8, position + out + c);
    }
  }
}

// One row of inputs: `row` counts over samples and input rows.
void pool_backward_row(const PoolGeometry& g, const float* dy, const uint8_t* position, float* dx,
                       int64_t row) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<uint8_t, decltype(di)> du8;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t sample = row / g.height, h = row % g.height + g.padding[0];
  const int64_t first_oh = h < g.kernel[0] ? 0 : (h - g.kernel[0]) / g.stride[0] + 1;
  const int64_t last_oh = std::min(g.out_height - 1, h / g.stride[0]);
  for (int64_t column = 0; column < g.width; ++column) {
    const int64_t w = column + g.padding[1];
    const int64_t first_ow = w < g.kernel[1] ? 0 : (w - g.kernel[1]) / g.stride[1] + 1;
    const int64_t last_ow = std::min(g.out_width - 1, w / g.stride[1]);
    float* to = dx + (row * g.width + column) * g.channels;
    for (int64_t c = 0; c < g.channels; c += lanes) {
      const size_t n = static_cast<size_t>(std::min(lanes, g.channels - c));
      const auto mask = hn::FirstN(d, n);
      auto sum = hn::Zero(d);
      for (int64_t oh = first_oh; oh <= last_oh; ++oh) {
        for (int64_t ow = first_ow; ow <= last_ow; ++ow) {
          const int64_t place = (h - oh * g.stride[0]) * g.kernel[1] + (w - ow * g.stride[1]);
          const int64_t at = ((sample * g.out_height + oh) * g.out_width + ow) * g.channels + c;
          const auto winner =
              hn::PromoteTo(di, hn::MaskedLoad(hn::FirstN(du8, n), du8, position + at));
          const auto won = hn::Eq(winner, hn::Set(di, static_cast<int32_t>(place)));
          sum = hn::Add(
              sum, hn::IfThenElseZero(hn::RebindMask(d, won), hn::MaskedLoad(mask, d, dy + at)));
        }
      }
      hn::BlendedStore(sum, mask, d, to + c);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dltrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dltrain {
namespace {
HWY_EXPORT(pool_row);
HWY_EXPORT(pool_backward_row);

PoolGeometry geometry(const Shape& x, const Shape& y, const Attributes& attributes) {
  const auto kernel = attributes.integers("kernel"), stride = attributes.integers("stride", kernel),
             padding = attributes.integers("padding", {0, 0});
  return {.height = x[1],
          .width = x[2],
          .channels = x[3],
          .out_height = y[1],
          .out_width = y[2],
          .kernel = {kernel[0], kernel[1]},
          .stride = {stride[0], stride[1]},
          .padding = {padding[0], padding[1]}};
}

// Rows that are worth a thread.
int64_t row_grain(const PoolGeometry& g) {
  return std::max<int64_t>(1, 4096 / (g.width * g.channels));
}

class MaxPool2d final : public Kernel {
 public:
  explicit MaxPool2d(const KernelRequest& r)
      : g_(geometry(r.inputs[0].shape, r.outputs[0].shape, r.attributes)),
        samples_(r.inputs[0].shape[0]) {}

  void bind(const Bindings& bindings) override {
    x_ = input<const float>(bindings, 0);
    y_ = output<float>(bindings, 0);
    position_ = output<uint8_t>(bindings, 1);
  }

  void run(Stream&) override {
    const auto function = HWY_DYNAMIC_DISPATCH(pool_row);
    parallel_for(samples_ * g_.out_height, row_grain(g_), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) function(g_, x_, y_, position_, row);
    });
  }

 private:
  PoolGeometry g_;
  int64_t samples_;
  const float* x_ = nullptr;
  float* y_ = nullptr;
  uint8_t* position_ = nullptr;
};

class MaxPool2dBackward final : public Kernel {
 public:
  explicit MaxPool2dBackward(const KernelRequest& r)
      : g_(geometry(r.outputs[0].shape, r.inputs[0].shape, r.attributes)),
        samples_(r.inputs[0].shape[0]) {}

  void bind(const Bindings& bindings) override {
    dy_ = input<const float>(bindings, 0);
    position_ = input<const uint8_t>(bindings, 1);
    dx_ = output<float>(bindings, 0);
  }

  void run(Stream&) override {
    const auto function = HWY_DYNAMIC_DISPATCH(pool_backward_row);
    parallel_for(samples_ * g_.height, row_grain(g_), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) function(g_, dy_, position_, dx_, row);
    });
  }

 private:
  PoolGeometry g_;
  int64_t samples_;
  const float* dy_ = nullptr;
  const uint8_t* position_ = nullptr;
  float* dx_ = nullptr;
};

}  // namespace

MadeKernel make_max_pool2d(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  return std::make_unique<MaxPool2d>(request);
}

MadeKernel make_max_pool2d_backward(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  return std::make_unique<MaxPool2dBackward>(request);
}

}  // namespace dltrain
#endif
