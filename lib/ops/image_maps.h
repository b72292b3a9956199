// Ops that map images linearly and separably in height and width: average pooling and upsampling.
//   y[n, i, j, c] = Σ_h Σ_w H[i, h] · W[j, w] · x[n, h, w, c]
// H and W are sparse and known from shapes and attributes; the gradient takes their transposes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ops/attributes.h"
#include "tensor/shape.h"

namespace dltrain {

// A sparse matrix by rows: row i (an output) has the entries [begin[i], begin[i + 1]), in order of
// their columns (inputs).
struct AxisMap {
  std::vector<int64_t> begin{0};
  std::vector<int64_t> index;
  std::vector<double> weight;

  int64_t outputs() const { return static_cast<int64_t>(begin.size()) - 1; }
};

AxisMap transposed(const AxisMap& map, int64_t inputs);

// Extent of a pooled axis: that of window_extent (ops/rules.h), and with `ceil` one more where a
// last window extends beyond the padding but begins before it (PyTorch's ceil_mode).
int64_t pooled_extent(std::string_view op, int64_t input, int64_t kernel, int64_t stride,
                      int64_t padding, bool ceil);

// The windows of a pooling op, in height and width.
struct PoolingWindows {
  std::vector<int64_t> kernel, stride, padding;
  bool ceil;

  PoolingWindows(std::string_view op, const Attributes& attributes);
};

struct ImageMaps {
  AxisMap height, width;
};

// The maps of avg_pool2d and adaptive_max_pool2d (whose windows are the entries). Attributes:
// output_size (two integers), or kernel, stride, padding (two integers each), count_include_pad
// (boolean, true) and ceil_mode (boolean, false). Throws Error(usage) when a window does not fit.
ImageMaps pooling_maps(std::string_view op, const Shape& x, const Attributes& attributes);

// The maps of upsample2d. Attributes: output_size (two integers), mode ("nearest" or "bilinear"),
// align_corners (boolean, false).
ImageMaps upsampling_maps(const Shape& x, const Attributes& attributes);

// [N, height.outputs(), width.outputs(), C]
Shape mapped_shape(const Shape& x, const ImageMaps& maps);

}  // namespace dltrain
