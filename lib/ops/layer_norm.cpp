// layer_norm: y = (x − mean) · rstd · weight + bias along the last axis (Ba et al. 2016).
//
//   x [..., C]; weight, bias [C], each may be absent
//   → y like x; mean, rstd [...] of each row, rstd = 1 / √(variance + epsilon), biased variance
// layer_norm_backward(x, dy, weight, mean, rstd) → dx; dweight if there is a weight; then dbias if
//   the attribute `bias` is true.
//
// rms_norm: y = x · rstd · weight with rstd = 1 / √(mean square + epsilon) (Zhang & Sennrich 2019).
//   rms_norm(x, weight) → y, rstd;  rms_norm_backward(x, dy, weight, rstd) → dx, dweight.
//
// weight, bias and statistics have the accumulation dtype of x. Attribute: epsilon (number).
#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

Shape rows_of_layer_norm(const Shape& x) {
  return Shape(x.dims().first(static_cast<size_t>(x.rank() - 1)));
}

void expect_rows_layer_norm(std::string_view op, const TensorSpec& x) {
  expect_rank(op, "the input", x.shape, 2, Shape::kMaxRank);
  expect_one_float_dtype(op, std::span(&x, 1));
}

// weight or bias, unless absent.
void expect_channels_layer_norm(std::string_view op, std::string_view what, const TensorSpec& found,
                                const TensorSpec& x) {
  if (is_absent(found)) return;
  expect_shape(op, what, found.shape, Shape{x.shape[-1]});
  expect_dtype(op, what, found, accumulation_dtype(x.dtype));
}

TensorSpec statistic_of_layer_norm(const TensorSpec& x) {
  return {rows_of_layer_norm(x.shape), accumulation_dtype(x.dtype)};
}

SpecList infer_layer_norm(SpecSpan inputs, const Attributes&) {
  expect_inputs("layer_norm", inputs, 3, 3);
  expect_rows_layer_norm("layer_norm", inputs[0]);
  expect_channels_layer_norm("layer_norm", "weight", inputs[1], inputs[0]);
  expect_channels_layer_norm("layer_norm", "bias", inputs[2], inputs[0]);
  return {inputs[0], statistic_of_layer_norm(inputs[0]), statistic_of_layer_norm(inputs[0])};
}

SpecList infer_rms_norm(SpecSpan inputs, const Attributes&) {
  expect_inputs("rms_norm", inputs, 2, 2);
  expect_rows_layer_norm("rms_norm", inputs[0]);
  expect_channels_layer_norm("rms_norm", "weight", inputs[1], inputs[0]);
  return {inputs[0], statistic_of_layer_norm(inputs[0])};
}

SpecList infer_layer_norm_backward(std::string_view op, SpecSpan inputs, bool bias) {
  expect_rows_layer_norm(op, inputs[0]);
  expect_shape(op, "dy", inputs[1].shape, inputs[0].shape);
  expect_dtype(op, "dy", inputs[1], inputs[0].dtype);
  expect_channels_layer_norm(op, "weight", inputs[2], inputs[0]);
  for (const TensorSpec& spec : inputs.subspan(3)) {
    expect_shape(op, "a statistic", spec.shape, rows_of_layer_norm(inputs[0].shape));
    expect_dtype(op, "a statistic", spec, accumulation_dtype(inputs[0].dtype));
  }
  const TensorSpec channels{Shape{inputs[0].shape[-1]}, accumulation_dtype(inputs[0].dtype)};
  SpecList out{inputs[0]};
  if (!is_absent(inputs[2])) out.push_back(channels);
  if (bias) out.push_back(channels);
  return out;
}

SpecList infer_layer_norm_backward(SpecSpan inputs, const Attributes& attributes) {
  expect_inputs("layer_norm_backward", inputs, 5, 5);
  return infer_layer_norm_backward("layer_norm_backward", inputs, attributes.boolean("bias"));
}

SpecList infer_rms_norm_backward(SpecSpan inputs, const Attributes&) {
  expect_inputs("rms_norm_backward", inputs, 4, 4);
  return infer_layer_norm_backward("rms_norm_backward", inputs, false);
}

std::vector<ValueId> gradient_layer_norm(const GradientRequest& r) {
  Attributes attributes = r.attributes;
  attributes.set("bias", r.inputs[2] != kNoValue);
  const auto made = r.emitter.emit(
      "layer_norm_backward",
      {r.inputs[0], r.output_gradients[0], r.inputs[1], r.outputs[1], r.outputs[2]}, attributes);
  std::vector<ValueId> out{made[0], kNoValue, kNoValue};
  size_t next = 1;
  for (size_t i = 1; i < 3; ++i) {
    if (r.inputs[i] != kNoValue) out[i] = made[next++];
  }
  return out;
}

std::vector<ValueId> gradient_rms_norm(const GradientRequest& r) {
  auto out =
      r.emitter.emit("rms_norm_backward",
                     {r.inputs[0], r.output_gradients[0], r.inputs[1], r.outputs[1]}, r.attributes);
  out.resize(2, kNoValue);
  return out;
}

// Rows are independent.
std::optional<std::vector<Placement>> split_layer_norm(SpecSpan inputs, const Attributes&,
                                                       std::span<const Placement> p) {
  return split_samples(p, std::vector(inputs.size(), kSplitSamples));
}

}  // namespace

// Sums, deviations and the result: about 8 operations per element in the forward, 14 in the
// backward.
constinit const OpDef kLayerNormOp{.name = "layer_norm",
                                   .doc = "y = (x − mean)·rstd·weight + bias along the last axis",
                                   .infer = infer_layer_norm,
                                   .gradient = gradient_layer_norm,
                                   .split = split_layer_norm,
                                   .cost = cost_an_element<8>};
constinit const OpDef kLayerNormBackwardOp{.name = "layer_norm_backward",
                                           .doc = "dx, dweight, dbias of layer_norm",
                                           .infer = infer_layer_norm_backward,
                                           .cost = cost_an_element<14>};
constinit const OpDef kRmsNormOp{.name = "rms_norm",
                                 .doc = "y = x·rstd·weight along the last axis",
                                 .infer = infer_rms_norm,
                                 .gradient = gradient_rms_norm,
                                 .split = split_layer_norm,
                                 .cost = cost_an_element<5>};
constinit const OpDef kRmsNormBackwardOp{.name = "rms_norm_backward",
                                         .doc = "dx, dweight of rms_norm",
                                         .infer = infer_rms_norm_backward,
                                         .cost = cost_an_element<11>};

}  // namespace dltrain
