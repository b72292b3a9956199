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
//
// On GPUs a norm also does what its neighbours in the graph would do (passes/fuse_norms.h);
// with x in f32 the tensors named "low" here may be in 16 bits:
//   forward: another input `delta` (low) after weight and bias: x + delta, an output after rstd, is
//     normalised instead of x. Attribute output_dtype (text): y (low) has that dtype; with `wide`
//     (bool) y in the dtype of x is the last output.
//   backward: dy (low); another input `residual` like x after rstd, which is added to dx. Attribute
//     output_dtype: dx in that dtype (low) is the last output.
#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"
#include "ops/token_axis.h"

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

// A tensor in the shape of x and its dtype, or in 16 bits beside x in f32.
void expect_low_layer_norm(std::string_view op, const TensorSpec& found, const TensorSpec& x) {
  expect_shape(op, "a tensor", found.shape, x.shape);
  const bool narrow = x.dtype == DType::f32 && is_low_precision(found.dtype);
  if (!narrow) expect_dtype(op, "a tensor", found, x.dtype);
}

// x in the dtype of the attribute output_dtype, the only 16-bit dtype beside that of `other`.
TensorSpec low_layer_norm(std::string_view op, const TensorSpec& x, const TensorSpec& other,
                          const Attributes& attributes) {
  const auto dtype = dtype_from_name(attributes.text("output_dtype"));
  const TensorSpec out{x.shape, dtype.value_or(x.dtype)};
  expect_low_layer_norm(op, out, x);
  if (is_low_precision(out.dtype) && is_low_precision(other.dtype)) {
    expect_dtype(op, "a tensor", other, out.dtype);
  }
  return out;
}

SpecList infer_norm(std::string_view op, SpecSpan inputs, const Attributes& attributes,
                    size_t channels) {
  expect_inputs(op, inputs, 1 + channels, 2 + channels);
  const TensorSpec& x = inputs[0];
  expect_rows_layer_norm(op, x);
  expect_channels_layer_norm(op, "weight", inputs[1], x);
  if (channels == 2) expect_channels_layer_norm(op, "bias", inputs[2], x);
  SpecList out{low_layer_norm(op, x, inputs.back(), attributes)};
  out.resize(1 + channels, statistic_of_layer_norm(x));
  if (inputs.size() == 2 + channels) {
    expect_low_layer_norm(op, inputs.back(), x);
    out.push_back(x);
  }
  if (attributes.boolean("wide")) out.push_back(x);
  return out;
}

SpecList infer_layer_norm(SpecSpan inputs, const Attributes& attributes) {
  return infer_norm("layer_norm", inputs, attributes, 2);
}

SpecList infer_rms_norm(SpecSpan inputs, const Attributes& attributes) {
  return infer_norm("rms_norm", inputs, attributes, 1);
}

SpecList infer_norm_backward(std::string_view op, SpecSpan inputs, const Attributes& attributes,
                             size_t statistics) {
  expect_inputs(op, inputs, 3 + statistics, 4 + statistics);
  const TensorSpec& x = inputs[0];
  expect_rows_layer_norm(op, x);
  expect_low_layer_norm(op, inputs[1], x);
  expect_channels_layer_norm(op, "weight", inputs[2], x);
  for (const TensorSpec& spec : inputs.subspan(3, statistics)) {
    expect_shape(op, "a statistic", spec.shape, rows_of_layer_norm(x.shape));
    expect_dtype(op, "a statistic", spec, accumulation_dtype(x.dtype));
  }
  if (inputs.size() == 4 + statistics) {
    expect_shape(op, "the residual", inputs.back().shape, x.shape);
    expect_dtype(op, "the residual", inputs.back(), x.dtype);
  }
  const TensorSpec channels{Shape{x.shape[-1]}, accumulation_dtype(x.dtype)};
  SpecList out{x};
  if (!is_absent(inputs[2])) out.push_back(channels);
  if (statistics == 2 && attributes.boolean("bias")) out.push_back(channels);
  if (attributes.has("output_dtype")) out.push_back(low_layer_norm(op, x, inputs[1], attributes));
  return out;
}

SpecList infer_layer_norm_backward(SpecSpan inputs, const Attributes& attributes) {
  return infer_norm_backward("layer_norm_backward", inputs, attributes, 2);
}

SpecList infer_rms_norm_backward(SpecSpan inputs, const Attributes& attributes) {
  return infer_norm_backward("rms_norm_backward", inputs, attributes, 1);
}

void expect_plain_layer_norm(const GradientRequest& r, size_t outputs) {
  check_internal(r.outputs.size() == outputs && !r.attributes.has("output_dtype"),
                 "norms are joined with their neighbours after the reverse pass only");
}

std::vector<ValueId> gradient_layer_norm(const GradientRequest& r) {
  expect_plain_layer_norm(r, 3);
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
  expect_plain_layer_norm(r, 2);
  auto out =
      r.emitter.emit("rms_norm_backward",
                     {r.inputs[0], r.output_gradients[0], r.inputs[1], r.outputs[1]}, r.attributes);
  out.resize(2, kNoValue);
  return out;
}

}  // namespace

// Sums, deviations and the result: about 8 operations per element in the forward, 14 in the
// backward.
constinit const OpDef kLayerNormOp{.name = "layer_norm",
                                   .doc = "y = (x − mean)·rstd·weight + bias along the last axis",
                                   .infer = infer_layer_norm,
                                   .gradient = gradient_layer_norm,
                                   .cost = cost_an_element<8>,
                                   .autocast = CastPolicy::follow_first,
                                   .token_axis = tokens_before_last};
constinit const OpDef kLayerNormBackwardOp{.name = "layer_norm_backward",
                                           .doc = "dx, dweight, dbias of layer_norm",
                                           .infer = infer_layer_norm_backward,
                                           .cost = cost_an_element<14>};
constinit const OpDef kRmsNormOp{.name = "rms_norm",
                                 .doc = "y = x·rstd·weight along the last axis",
                                 .infer = infer_rms_norm,
                                 .gradient = gradient_rms_norm,
                                 .cost = cost_an_element<5>,
                                 .autocast = CastPolicy::follow_first,
                                 .token_axis = tokens_before_last};
constinit const OpDef kRmsNormBackwardOp{.name = "rms_norm_backward",
                                         .doc = "dx, dweight of rms_norm",
                                         .infer = infer_rms_norm_backward,
                                         .cost = cost_an_element<11>};

}  // namespace dltrain
