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

void check_group_norm(SpecSpan inputs, const Attributes& attributes) {
  const Shape& x = inputs[0].shape;
  const int64_t groups = attributes.integer("groups", 1);
  if (groups < 1 || x[-1] % groups != 0) {
    fail(ExitCode::usage, "group_norm: {} groups of the {} channels of {}", groups, x[-1],
         to_string(x));
  }
}

std::vector<ValueId> gradient_group_norm(const GradientRequest& r) {
  auto out = r.emitter.emit(
      "group_norm_backward",
      {r.inputs[0], r.output_gradients[0], r.inputs[1], r.outputs[1], r.outputs[2]}, r.attributes);
  out.resize(3, kNoValue);
  return out;
}

}  // namespace

constinit const OpDef kGroupNormOp{
    .name = "group_norm",
    .doc = "normalises each group of channels of each sample",
    .signature =
        "x[N,*,C] weight[C]:sum? bias[C]:sum? -> y[N,*,C] mean[N,G]:sum rstd[N,G]:sum; G=groups",
    .check = check_group_norm,
    .gradient = gradient_group_norm,
    .cost = cost_an_element<8>,
    .autocast = CastPolicy::follow_first};
constinit const OpDef kGroupNormBackwardOp{
    .name = "group_norm_backward",
    .doc = "dx, dweight, dbias of group_norm",
    .signature =
        "x[N,*,C] dy[N,*,C] weight[C]:sum? mean[N,G]:sum rstd[N,G]:sum -> dx[N,*,C] "
        "dweight[C]:sum?weight dbias[C]:sum?weight; G=groups",
    .check = check_group_norm,
    .cost = cost_an_element<14>};

}  // namespace dltrain
