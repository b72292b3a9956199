// upsample2d: resizes images, as torch.nn.functional.interpolate does with a size instead of a
// scale factor.
//
//   x [N, H, W, C] → y [N, OH, OW, C]
//
// Attributes: output_size (two integers: height, width), mode ("nearest": the pixel ⌊o·H/OH⌋;
// "bilinear"), align_corners (boolean; bilinear only: the corners' centres stay where they are).
// upsample2d_backward(dy) → dx; attribute input_shape.
#include "ops/definitions.h"
#include "ops/image_maps.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

SpecList infer_upsample2d(SpecSpan inputs, const Attributes& attributes) {
  const Shape& x = inputs[0].shape;
  return {{mapped_shape(x, upsampling_maps(x, attributes)), inputs[0].dtype}};
}

SpecList infer_upsample2d_backward(SpecSpan inputs, const Attributes& attributes) {
  const Shape x(attributes.integers("input_shape"));
  expect_shape("upsample2d_backward", "dy", inputs[0].shape,
               mapped_shape(x, upsampling_maps(x, attributes)));
  return {{x, inputs[0].dtype}};
}

std::vector<ValueId> gradient_upsample2d(const GradientRequest& r) {
  return {r.emitter.emit1("upsample2d_backward", {r.output_gradients[0]}, with_input_shape(r))};
}

// Cost of a multiply-add for each of the four (or one) neighbours per pixel of the larger image.
Cost cost_upsample2d(SpecSpan inputs, SpecSpan outputs, const Attributes& attributes) {
  const bool backward = attributes.has("input_shape");
  const auto pixels = static_cast<double>((backward ? inputs : outputs)[0].shape.elements());
  return {pixels * (attributes.text("mode") == "nearest" ? 1 : 8),
          static_cast<double>(inputs[0].bytes() + outputs[0].bytes())};
}

}  // namespace

constinit const OpDef kUpsample2dOp{.name = "upsample2d",
                                    .doc = "resizes images, nearest or bilinear",
                                    .signature = "x[N,H,W,C]",
                                    .infer = infer_upsample2d,
                                    .gradient = gradient_upsample2d,
                                    .place = place_windows<1>,
                                    .cost = cost_upsample2d,
                                    .autocast = CastPolicy::follow};
constinit const OpDef kUpsample2dBackwardOp{.name = "upsample2d_backward",
                                            .doc = "dx of upsample2d",
                                            .signature = "dy[N,H,W,C]",
                                            .infer = infer_upsample2d_backward,
                                            .cost = cost_upsample2d};

}  // namespace dltrain
