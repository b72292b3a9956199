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
//   backward: dy (low); another input `residual` like x after rstd, which is added to dx, or with
//     `adds_to_dy` (bool) to dy. Attribute output_dtype: dx in that dtype (low) is the last output.
#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"
#include "ops/token_axis.h"

namespace dltrain {
namespace {

// Tensors named "low" have the dtype of x, or beside x in f32 one 16-bit dtype.
void check_low(std::string_view op, const TensorSpec& x, const TensorSpec* other,
               const Attributes& attributes) {
  const auto low = dtype_from_name(attributes.text("output_dtype")).value_or(x.dtype);
  for (const DType dtype : {low, other != nullptr ? other->dtype : low}) {
    const bool narrow = x.dtype == DType::f32 && is_low_precision(dtype);
    if (!narrow) expect_dtype(op, "a tensor", {x.shape, dtype}, x.dtype);
  }
  if (other != nullptr && is_low_precision(low) && is_low_precision(other->dtype)) {
    expect_dtype(op, "a tensor", *other, low);
  }
}

template <size_t delta>
void check_norm(SpecSpan inputs, const Attributes& attributes) {
  check_low("a norm", inputs[0], inputs.size() > delta ? &inputs[delta] : nullptr, attributes);
}
void check_norm_backward(SpecSpan inputs, const Attributes& attributes) {
  check_low("the gradient of a norm", inputs[0], &inputs[1], attributes);
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

// For norms that are not joined with their neighbours yet.
template <size_t kInputs>
std::optional<std::vector<Placement>> place_norm(SpecSpan inputs, const Attributes& attributes,
                                                 std::span<const Placement> p) {
  if (p.size() > kInputs || attributes.has("output_dtype") || attributes.has("wide")) return {};
  return place_rows<kInputs>(inputs, attributes, p);
}

}  // namespace

// Sums, deviations and the result: about 8 operations per element in the forward, 14 in the
// backward.
constinit const OpDef kLayerNormOp{
    .name = "layer_norm",
    .doc = "y = (x − mean)·rstd·weight + bias along the last axis",
    .signature =
        "x[N,*,C] weight[C]:sum? bias[C]:sum? delta[N,*,C]:any? -> y[N,*,C]:output_dtype "
        "mean[N,*]:sum rstd[N,*]:sum x_delta[N,*,C]?delta wide[N,*,C]?@wide",
    .check = check_norm<3>,
    .gradient = gradient_layer_norm,
    .place = place_norm<3>,
    .cost = cost_an_element<8>,
    .autocast = CastPolicy::follow_first,
    .token_axis = tokens_before_last};
constinit const OpDef kLayerNormBackwardOp{
    .name = "layer_norm_backward",
    .doc = "dx, dweight, dbias of layer_norm",
    .signature =
        "x[N,*,C] dy[N,*,C]:any weight[C]:sum? mean[N,*]:sum rstd[N,*]:sum residual[N,*,C]? -> "
        "dx[N,*,C] dweight[C]:sum?weight dbias[C]:sum?@bias low[N,*,C]:output_dtype?@output_dtype",
    .check = check_norm_backward,
    .cost = cost_an_element<14>};
constinit const OpDef kRmsNormOp{
    .name = "rms_norm",
    .doc = "y = x·rstd·weight along the last axis",
    .signature =
        "x[N,*,C] weight[C]:sum? delta[N,*,C]:any? -> y[N,*,C]:output_dtype rstd[N,*]:sum "
        "x_delta[N,*,C]?delta wide[N,*,C]?@wide",
    .check = check_norm<2>,
    .gradient = gradient_rms_norm,
    .place = place_norm<2>,
    .cost = cost_an_element<5>,
    .autocast = CastPolicy::follow_first,
    .token_axis = tokens_before_last};
constinit const OpDef kRmsNormBackwardOp{
    .name = "rms_norm_backward",
    .doc = "dx, dweight of rms_norm",
    .signature =
        "x[N,*,C] dy[N,*,C]:any weight[C]:sum? rstd[N,*]:sum residual[N,*,C]? -> dx[N,*,C] "
        "dweight[C]:sum?weight low[N,*,C]:output_dtype?@output_dtype",
    .check = check_norm_backward,
    .cost = cost_an_element<11>};

}  // namespace dltrain
