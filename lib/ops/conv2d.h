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

// [N, OH, OW, Cout] for x [N, H, W, Cin] and w [Cout, KH, KW, Cin / groups].
// Throws Error(usage) naming the shapes when they do not fit.
Shape conv2d_output_shape(const Shape& x, const Shape& w, const Conv2dAttributes& attributes);

}  // namespace dltrain
