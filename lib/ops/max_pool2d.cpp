// max_pool2d: y = the maximum of each window, without padding.
//
//   x [N, H, W, C] → y [N, OH, OW, C], position u8 [N, OH, OW, C]: the maximum's index in its
//   window, row by row (the first on ties, NaN wins as in PyTorch). A window has at most 255
//   elements.
//
// Attributes: kernel, stride, padding (two integers each: height, width); ceil_mode (boolean,
// false): windows that extend beyond the padding count too (ops/image_maps.h).
// max_pool2d_backward(dy, position) → dx; attribute input_shape. Overlapping windows add up.
//
// max_pool2d_tangent(dx, position) → dy: dx at the maxima, of max_pool2d or with output_size of
// adaptive_max_pool2d, whose attributes it has (forward-mode differentiation, ops/tangents.h).
#include "base/error.h"
#include "ops/definitions.h"
#include "ops/image_maps.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

Shape pooled_max_pool2d(const Shape& x, const Attributes& attributes) {
  const PoolingWindows w("max_pool2d", attributes);
  const std::vector<int64_t>& kernel = w.kernel;
  const Shape y{
      x[0], pooled_extent("max_pool2d", x[1], kernel[0], w.stride[0], w.padding[0], w.ceil),
      pooled_extent("max_pool2d", x[2], kernel[1], w.stride[1], w.padding[1], w.ceil), x[3]};
  if (kernel[0] > 255 || kernel[1] > 255 || kernel[0] * kernel[1] > 255) {
    fail(ExitCode::usage, "max_pool2d: a window of {}×{} has more than 255 elements", kernel[0],
         kernel[1]);
  }
  return y;
}

SpecList infer_max_pool2d(SpecSpan inputs, const Attributes& attributes) {
  const Shape y = pooled_max_pool2d(inputs[0].shape, attributes);
  return {{y, inputs[0].dtype}, {y, DType::u8}};
}

std::vector<ValueId> gradient_max_pool2d(const GradientRequest& r) {
  return {r.emitter.emit1("max_pool2d_backward", {r.output_gradients[0], r.outputs[1]},
                          with_input_shape(r))};
}

SpecList infer_max_pool2d_backward(SpecSpan inputs, const Attributes& attributes) {
  const Shape x(attributes.integers("input_shape"));
  expect_shape("max_pool2d_backward", "dy", inputs[0].shape, pooled_max_pool2d(x, attributes));
  return {{x, inputs[0].dtype}};
}

SpecList infer_max_pool2d_tangent(SpecSpan inputs, const Attributes& attributes) {
  const Shape& x = inputs[0].shape;
  const bool adaptive = attributes.has("output_size");
  expect_dtype("max_pool2d_tangent", "the position", inputs[1], adaptive ? DType::i32 : DType::u8);
  expect_shape("max_pool2d_tangent", "the position", inputs[1].shape,
               adaptive ? mapped_shape(x, pooling_maps("max_pool2d_tangent", x, attributes))
                        : pooled_max_pool2d(x, attributes));
  return {{inputs[1].shape, inputs[0].dtype}};
}

}  // namespace

constinit const OpDef kMaxPool2dOp{.name = "max_pool2d",
                                   .doc = "y = the maximum of each window, and its position",
                                   .signature = "x[N,H,W,C]",
                                   .infer = infer_max_pool2d,
                                   .gradient = gradient_max_pool2d,
                                   .place = place_windows<2>,
                                   .autocast = CastPolicy::follow};
constinit const OpDef kMaxPool2dBackwardOp{.name = "max_pool2d_backward",
                                           .doc = "dx of max_pool2d",
                                           .signature = "dy[*] position[*]:u8",
                                           .infer = infer_max_pool2d_backward};
constinit const OpDef kMaxPool2dTangentOp{.name = "max_pool2d_tangent",
                                          .doc = "dx at the maxima of max_pool2d",
                                          .signature = "dx[N,H,W,C] position[N,P,Q,C]:any",
                                          .infer = infer_max_pool2d_tangent};

}  // namespace dltrain
