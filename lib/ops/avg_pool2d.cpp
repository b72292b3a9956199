// avg_pool2d: y = the mean of each window.
//
//   x [N, H, W, C] → y [N, OH, OW, C]
//
// Attributes (ops/image_maps.h): kernel, stride, padding, count_include_pad, ceil_mode; or
// output_size, where the windows follow from both extents (adaptive_avg_pool2d of PyTorch).
// avg_pool2d_backward(dy) → dx; attribute input_shape.
//
// adaptive_max_pool2d: the maximum of such windows (attribute output_size); position i32 [N, OH,
// OW, C] is h·W + w of the maximum (the first on ties, NaN wins as in PyTorch).
// adaptive_max_pool2d_backward(dy, position) → dx; attribute input_shape.
#include "base/error.h"
#include "ops/definitions.h"
#include "ops/image_maps.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

Shape pooled_avg_pool2d(std::string_view op, const Shape& x, const Attributes& attributes) {
  return mapped_shape(x, pooling_maps(op, x, attributes));
}

SpecList infer_average(SpecSpan inputs, const Attributes& attributes) {
  return {{pooled_avg_pool2d("avg_pool2d", inputs[0].shape, attributes), inputs[0].dtype}};
}

SpecList infer_max(SpecSpan inputs, const Attributes& attributes) {
  const Shape& x = inputs[0].shape;
  const Shape y = pooled_avg_pool2d("adaptive_max_pool2d", x, attributes);
  if (x[1] > (int64_t{1} << 30) / x[2]) {
    fail(ExitCode::usage, "adaptive_max_pool2d: {} has too many pixels", to_string(x));
  }
  return {{y, inputs[0].dtype}, {y, DType::i32}};
}

template <bool kMax>
SpecList infer_window_backward(SpecSpan inputs, const Attributes& attributes) {
  constexpr std::string_view kOp = kMax ? "adaptive_max_pool2d_backward" : "avg_pool2d_backward";
  const Shape x(attributes.integers("input_shape"));
  expect_shape(kOp, "dy", inputs[0].shape, pooled_avg_pool2d(kOp, x, attributes));
  return {{x, inputs[0].dtype}};
}

std::vector<ValueId> gradient_average(const GradientRequest& r) {
  return {r.emitter.emit1("avg_pool2d_backward", {r.output_gradients[0]}, with_input_shape(r))};
}
std::vector<ValueId> gradient_max(const GradientRequest& r) {
  return {r.emitter.emit1("adaptive_max_pool2d_backward", {r.output_gradients[0], r.outputs[1]},
                          with_input_shape(r))};
}

// One operation for each input of each window.
Cost window_cost(const Shape& x, SpecSpan inputs, SpecSpan outputs, const Attributes& attributes) {
  const ImageMaps maps = pooling_maps("avg_pool2d", x, attributes);
  return {static_cast<double>(x[0] * x[3]) * static_cast<double>(maps.height.index.size()) *
              static_cast<double>(maps.width.index.size()),
          bytes_moved(inputs, outputs)};
}
Cost cost_avg_pool2d(SpecSpan inputs, SpecSpan outputs, const Attributes& attributes) {
  return window_cost(inputs[0].shape, inputs, outputs, attributes);
}
Cost cost_avg_pool2d_backward(SpecSpan inputs, SpecSpan outputs, const Attributes& attributes) {
  return window_cost(outputs[0].shape, inputs, outputs, attributes);
}

}  // namespace

constinit const OpDef kAvgPool2dOp{.name = "avg_pool2d",
                                   .doc = "y = the mean of each window",
                                   .signature = "x[N,H,W,C]",
                                   .infer = infer_average,
                                   .gradient = gradient_average,
                                   .place = place_windows<1>,
                                   .cost = cost_avg_pool2d,
                                   .autocast = CastPolicy::follow};
constinit const OpDef kAvgPool2dBackwardOp{.name = "avg_pool2d_backward",
                                           .doc = "dx of avg_pool2d",
                                           .signature = "dy[N,H,W,C]",
                                           .infer = infer_window_backward<false>,
                                           .cost = cost_avg_pool2d_backward};
constinit const OpDef kAdaptiveMaxPool2dOp{
    .name = "adaptive_max_pool2d",
    .doc = "y = the maximum of each adaptive window, and its position",
    .signature = "x[N,H,W,C]",
    .infer = infer_max,
    .gradient = gradient_max,
    .place = place_windows<2>,
    .cost = cost_avg_pool2d,
    .autocast = CastPolicy::follow};
constinit const OpDef kAdaptiveMaxPool2dBackwardOp{.name = "adaptive_max_pool2d_backward",
                                                   .doc = "dx of adaptive_max_pool2d",
                                                   .signature = "dy[N,H,W,C] position[N,H,W,C]:i32",
                                                   .infer = infer_window_backward<true>,
                                                   .cost = cost_avg_pool2d_backward};

}  // namespace dltrain
