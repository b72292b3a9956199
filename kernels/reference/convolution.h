// Geometry of the convolution kernels, and the sums of the forward.
#pragma once

#include "ops/conv2d.h"
#include "reference/call.h"

namespace dltrain {

struct ConvolutionGeometry {
  ConvolutionGeometry(const Shape& x_shape, const Shape& w_shape, const Shape& y_shape,
                      const Attributes& attributes)
      : x(x_shape), w(w_shape), y(y_shape), a(attributes) {}

  int64_t in_channels() const { return w[3]; }              // of one group
  int64_t out_channels() const { return w[0] / a.groups; }  // of one group
  int64_t group_of(int64_t out_channel) const { return out_channel / out_channels(); }

  int64_t x_at(int64_t n, int64_t h, int64_t v, int64_t c) const {
    return ((n * x[1] + h) * x[2] + v) * x[3] + c;
  }
  int64_t w_at(int64_t co, int64_t kh, int64_t kw, int64_t ci) const {
    return ((co * w[1] + kh) * w[2] + kw) * w[3] + ci;
  }
  int64_t y_at(int64_t n, int64_t h, int64_t v, int64_t c) const {
    return ((n * y[1] + h) * y[2] + v) * y[3] + c;
  }
  // Returns the input row (axis 0) or column (axis 1) at position k of the window of output o; it
  // may be in the padding.
  int64_t input_of(int axis, int64_t o, int64_t k) const {
    return o * a.stride[axis] - a.padding[axis] + k * a.dilation[axis];
  }
  bool inside(int64_t h, int64_t v) const { return h >= 0 && h < x[1] && v >= 0 && v < x[2]; }

  Shape x, w, y;
  Conv2dAttributes a;
};

// Returns y[n, oh, ow, co] of x ∗ w: the sum over the window and the group's input channels.
template <typename T>
double window_sum(const NaiveCall& c, const ConvolutionGeometry& g, int64_t n, int64_t oh,
                  int64_t ow, int64_t co) {
  const T *x = c.input<T>(0), *w = c.input<T>(1);
  const int64_t first = g.group_of(co) * g.in_channels();
  double sum = 0;
  for (int64_t kh = 0; kh < g.w[1]; ++kh) {
    for (int64_t kw = 0; kw < g.w[2]; ++kw) {
      const int64_t h = g.input_of(0, oh, kh), v = g.input_of(1, ow, kw);
      if (!g.inside(h, v)) continue;
      for (int64_t ci = 0; ci < g.in_channels(); ++ci) {
        sum += static_cast<double>(x[g.x_at(n, h, v, first + ci)]) * w[g.w_at(co, kh, kw, ci)];
      }
    }
  }
  return sum;
}

// Calls use(element, channel, sum) for every element of y, in order.
template <typename T, typename Use>
void for_each_sum(const NaiveCall& c, const ConvolutionGeometry& g, const Use& use) {
  int64_t element = 0;
  for (int64_t n = 0; n < g.y[0]; ++n) {
    for (int64_t oh = 0; oh < g.y[1]; ++oh) {
      for (int64_t ow = 0; ow < g.y[2]; ++ow) {
        for (int64_t co = 0; co < g.y[3]; ++co) {
          use(element++, co, window_sum<T>(c, g, n, oh, ow, co));
        }
      }
    }
  }
}

}  // namespace dltrain
