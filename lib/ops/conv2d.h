// Attributes of the convolution ops, read once by kernels of every backend.
#pragma once

#include <cstdint>

#include "ops/attributes.h"
#include "tensor/shape.h"

namespace dltrain {

struct Conv2dAttributes {
  int64_t stride[2] = {1, 1};    // height, width
  int64_t padding[2] = {0, 0};   // the same on both sides
  int64_t dilation[2] = {1, 1};  // 1: dense
  int64_t groups = 1;

  explicit Conv2dAttributes(const Attributes& attributes);
};

// The extents of y = x ∗ w, as kernels take them.
struct Conv2dSizes : Conv2dAttributes {
  int64_t samples;
  int64_t in[2], out[2];  // height, width
  int64_t in_channels, out_channels;
  int64_t kernel[2];

  Conv2dSizes(const Shape& x, const Shape& w, const Shape& y, const Conv2dAttributes& attributes)
      : Conv2dAttributes(attributes),
        samples(x[0]),
        in{x[1], x[2]},
        out{y[1], y[2]},
        in_channels(x[3]),
        out_channels(y[3]),
        kernel{w[1], w[2]} {}
};

// [N, OH, OW, Cout] for x [N, H, W, Cin] and w [Cout, KH, KW, Cin / groups].
// Throws Error(usage) naming the shapes when they do not fit.
Shape conv2d_output_shape(const Shape& x, const Shape& w, const Conv2dAttributes& attributes);

}  // namespace dltrain
