// Geometry of the convolution kernels.
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

}  // namespace dltrain
