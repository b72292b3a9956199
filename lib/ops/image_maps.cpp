#include "ops/image_maps.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

constexpr int64_t kMaxOutputs = int64_t{1} << 20;  // a larger image does not fit in memory

void add_window(AxisMap& map, int64_t first, int64_t last, int64_t divisor) {
  for (int64_t i = first; i < last; ++i) {
    map.index.push_back(i);
    map.weight.push_back(1.0 / static_cast<double>(divisor));
  }
  map.begin.push_back(static_cast<int64_t>(map.index.size()));
}

// PyTorch's windows: with count_include_pad the padding counts as zeros, but not the part of a
// window beyond the padding.
AxisMap windows(std::string_view op, int64_t input, int64_t kernel, int64_t stride, int64_t padding,
                bool count_include_pad, bool ceil) {
  AxisMap map;
  const int64_t outputs = pooled_extent(op, input, kernel, stride, padding, ceil);
  for (int64_t o = 0; o < outputs; ++o) {
    const int64_t start = o * stride - padding;
    const int64_t first = std::max<int64_t>(0, start), last = std::min(start + kernel, input);
    const int64_t padded = std::min(start + kernel, input + padding) - start;
    add_window(map, first, last, count_include_pad ? padded : last - first);
  }
  return map;
}

// Output o covers the inputs from ⌊o·n/m⌋ to ⌈(o + 1)·n/m⌉.
AxisMap adaptive_windows(int64_t input, int64_t outputs) {
  AxisMap map;
  for (int64_t o = 0; o < outputs; ++o) {
    const int64_t first = o * input / outputs;
    const int64_t last = ((o + 1) * input + outputs - 1) / outputs;
    add_window(map, first, last, last - first);
  }
  return map;
}

AxisMap nearest(int64_t input, int64_t outputs) {
  AxisMap map;
  for (int64_t o = 0; o < outputs; ++o) {
    const int64_t from = o * input / outputs;
    add_window(map, from, from + 1, 1);
  }
  return map;
}

AxisMap linear(int64_t input, int64_t outputs, bool align_corners) {
  AxisMap map;
  const auto ratio = [](int64_t a, int64_t b) {
    return static_cast<double>(a) / static_cast<double>(b);
  };
  for (int64_t o = 0; o < outputs; ++o) {
    const auto position = static_cast<double>(o);
    double source = 0;
    if (!align_corners) {
      source = std::max(0.0, (position + 0.5) * ratio(input, outputs) - 0.5);
    } else if (outputs > 1) {
      source = position * ratio(input - 1, outputs - 1);
    }
    const int64_t low = std::min(static_cast<int64_t>(source), input - 1);
    const double share = source - static_cast<double>(low);
    map.index.push_back(low);
    map.weight.push_back(low + 1 < input ? 1 - share : 1);
    if (low + 1 < input) {
      map.index.push_back(low + 1);
      map.weight.push_back(share);
    }
    map.begin.push_back(static_cast<int64_t>(map.index.size()));
  }
  return map;
}

std::vector<int64_t> output_size(std::string_view op, const Attributes& attributes) {
  const auto size = attributes.integers("output_size");
  check_internal(size.size() == 2, "{}: output_size has two values", op);
  for (int64_t extent : size) {
    if (extent < 1 || extent > kMaxOutputs) {
      fail(ExitCode::usage, "{}: an output of {} × {}", op, size[0], size[1]);
    }
  }
  return size;
}

void expect_images(std::string_view op, const Shape& x) {
  if (x[1] < 1 || x[2] < 1) fail(ExitCode::usage, "{}: an image of {}", op, to_string(x));
}

}  // namespace

AxisMap transposed(const AxisMap& map, int64_t inputs) {
  AxisMap out;
  out.begin.assign(static_cast<size_t>(inputs) + 1, 0);
  for (int64_t i : map.index) ++out.begin[static_cast<size_t>(i) + 1];
  for (size_t i = 1; i < out.begin.size(); ++i) out.begin[i] += out.begin[i - 1];
  out.index.resize(map.index.size());
  out.weight.resize(map.index.size());
  std::vector<int64_t> next = out.begin;
  for (int64_t o = 0; o < map.outputs(); ++o) {
    for (int64_t e = map.begin[static_cast<size_t>(o)]; e < map.begin[static_cast<size_t>(o) + 1];
         ++e) {
      const auto from = static_cast<size_t>(e);
      const auto to = static_cast<size_t>(next[static_cast<size_t>(map.index[from])]++);
      out.index[to] = o;
      out.weight[to] = map.weight[from];
    }
  }
  return out;
}

int64_t pooled_extent(std::string_view op, int64_t input, int64_t kernel, int64_t stride,
                      int64_t padding, bool ceil) {
  // With `ceil` a window is clipped if it exceeds the padded image by less than a stride.
  const int64_t room = input + 2 * padding - kernel;
  if (ceil && room < 0 && room + stride > 0) return 1;
  const int64_t whole = window_extent(op, input, kernel, stride, padding, 1);
  const bool left_over = (input + 2 * padding - kernel) % stride != 0;
  return whole + (ceil && left_over && whole * stride < input + padding ? 1 : 0);
}

PoolingWindows::PoolingWindows(std::string_view op, const Attributes& attributes)
    : kernel(attributes.integers("kernel")),
      stride(attributes.integers("stride", kernel)),
      padding(attributes.integers("padding", {0, 0})),
      ceil(attributes.boolean("ceil_mode")) {
  check_internal(kernel.size() == 2 && stride.size() == 2 && padding.size() == 2,
                 "{}: kernel, stride and padding have two values", op);
  if (padding[0] > kernel[0] / 2 || padding[1] > kernel[1] / 2) {
    fail(ExitCode::usage, "{}: padding [{}, {}] is more than half of the window [{}, {}]", op,
         padding[0], padding[1], kernel[0], kernel[1]);
  }
}

ImageMaps pooling_maps(std::string_view op, const Shape& x, const Attributes& attributes) {
  expect_images(op, x);
  if (attributes.has("output_size")) {
    const auto size = output_size(op, attributes);
    return {adaptive_windows(x[1], size[0]), adaptive_windows(x[2], size[1])};
  }
  const PoolingWindows w(op, attributes);
  const bool include = attributes.boolean("count_include_pad", true);
  return {windows(op, x[1], w.kernel[0], w.stride[0], w.padding[0], include, w.ceil),
          windows(op, x[2], w.kernel[1], w.stride[1], w.padding[1], include, w.ceil)};
}

ImageMaps upsampling_maps(const Shape& x, const Attributes& attributes) {
  expect_images("upsample2d", x);
  const auto size = output_size("upsample2d", attributes);
  if (attributes.text("mode") == "nearest") return {nearest(x[1], size[0]), nearest(x[2], size[1])};
  check_internal(attributes.text("mode") == "bilinear", "upsample2d: mode {}",
                 attributes.text("mode"));
  const bool corners = attributes.boolean("align_corners");
  return {linear(x[1], size[0], corners), linear(x[2], size[1], corners)};
}

Shape mapped_shape(const Shape& x, const ImageMaps& maps) {
  return {x[0], maps.height.outputs(), maps.width.outputs(), x[3]};
}

}  // namespace dltrain
