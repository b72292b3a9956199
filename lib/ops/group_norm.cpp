// group_norm: normalises each group of channels of each sample (Wu & He 2018).
//
//   x [N, ..., C]; weight, bias [C], both or neither
//   → y = (x − mean) · rstd · weight + bias; mean, rstd [N, groups], rstd = 1 / √(variance +
//   epsilon), biased variance over all places of the sample and the C / groups channels
// group_norm_backward(x, dy, weight, mean, rstd) → dx, dweight, dbias; without weight dx alone.
//
// weight, bias and statistics have the accumulation dtype of x. Attributes: groups (integer),
// epsilon (number).
#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

// Checks x and the attributes; returns the spec of a statistic.
TensorSpec statistic_of_group_norm(std::string_view op, const TensorSpec& x,
                                   const Attributes& attributes) {
  expect_rank(op, "the input", x.shape, 2, Shape::kMaxRank);
  expect_one_float_dtype(op, std::span(&x, 1));
  const int64_t groups = attributes.integer("groups", 1);
  if (groups < 1 || x.shape[-1] % groups != 0) {
    fail(ExitCode::usage, "{}: {} groups of the {} channels of {}", op, groups, x.shape[-1],
         to_string(x.shape));
  }
  return {Shape{x.shape[0], groups}, accumulation_dtype(x.dtype)};
}

void expect_channels_group_norm(std::string_view op, const TensorSpec& found, const TensorSpec& x) {
  expect_shape(op, "a channel vector", found.shape, Shape{x.shape[-1]});
  expect_dtype(op, "a channel vector", found, accumulation_dtype(x.dtype));
}

SpecList infer_group_norm(SpecSpan inputs, const Attributes& attributes) {
  expect_inputs("group_norm", inputs, 3, 3);
  const TensorSpec statistic = statistic_of_group_norm("group_norm", inputs[0], attributes);
  check_internal(is_absent(inputs[1]) == is_absent(inputs[2]),
                 "group_norm: weight or bias without the other");
  for (size_t i = 1; i < 3 && !is_absent(inputs[1]); ++i) {
    expect_channels_group_norm("group_norm", inputs[i], inputs[0]);
  }
  return {inputs[0], statistic, statistic};
}

SpecList infer_group_norm_backward(SpecSpan inputs, const Attributes& attributes) {
  expect_inputs("group_norm_backward", inputs, 5, 5);
  const TensorSpec statistic =
      statistic_of_group_norm("group_norm_backward", inputs[0], attributes);
  expect_shape("group_norm_backward", "dy", inputs[1].shape, inputs[0].shape);
  expect_dtype("group_norm_backward", "dy", inputs[1], inputs[0].dtype);
  if (!is_absent(inputs[2]))
    expect_channels_group_norm("group_norm_backward", inputs[2], inputs[0]);
  for (size_t i = 3; i < 5; ++i) {
    expect_shape("group_norm_backward", "a statistic", inputs[i].shape, statistic.shape);
    expect_dtype("group_norm_backward", "a statistic", inputs[i], statistic.dtype);
  }
  if (is_absent(inputs[2])) return {inputs[0]};
  return {inputs[0], inputs[2], inputs[2]};
}

std::vector<ValueId> gradient_group_norm(const GradientRequest& r) {
  auto out = r.emitter.emit(
      "group_norm_backward",
      {r.inputs[0], r.output_gradients[0], r.inputs[1], r.outputs[1], r.outputs[2]}, r.attributes);
  out.resize(3, kNoValue);
  return out;
}

}  // namespace

constinit const OpDef kGroupNormOp{.name = "group_norm",
                                   .doc = "normalises each group of channels of each sample",
                                   .infer = infer_group_norm,
                                   .gradient = gradient_group_norm,
                                   .cost = cost_an_element<8>,
                                   .autocast = CastPolicy::follow_first};
constinit const OpDef kGroupNormBackwardOp{.name = "group_norm_backward",
                                           .doc = "dx, dweight, dbias of group_norm",
                                           .infer = infer_group_norm_backward,
                                           .cost = cost_an_element<14>};

}  // namespace dltrain
