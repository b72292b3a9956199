// elementwise_loss: a loss summed over the elements of output x and targets t, d = x − t.
//
//   kind                  each element adds
//   mse                   d²
//   l1                    |d|
//   huber                 ½d² where |d| ≤ delta, else delta·(|d| − ½delta)
//   smooth_l1             ½d²/delta where |d| < delta, else |d| − ½delta (delta 0: l1)
//   binary_cross_entropy  −p·t·log σ(x) − (1−t)·log(1 − σ(x)), computed as
//                         (1−t)·x + (1 + (p−1)·t)·softplus(−x), p the pos_weight
//
// These are PyTorch's mse_loss, l1_loss, huber_loss, smooth_l1_loss (delta is its beta) and
// binary_cross_entropy_with_logits, summed. A target that is NaN does not count.
//
//   outputs  loss_sum f64 [1]; of binary_cross_entropy also correct f64 [1]: counted elements where
//            x > 0 just when t > ½
//
// elementwise_loss_backward(x, t, dloss f64 [1]) → dx = dloss · d/dx of the above, 0 where t does
// not count, and at the corner of l1.
//
// Attributes of both: kind (text), delta (number, 1), pos_weight (numbers: one, one for each
// element of the innermost axis, or none). No gradient flows to targets.
#include <algorithm>

#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

void check_elementwise_loss(SpecSpan inputs, const Attributes& attributes) {
  constexpr std::string_view kOp = "elementwise_loss";
  constexpr std::string_view kKinds[] = {"mse", "l1", "huber", "smooth_l1", "binary_cross_entropy"};
  const std::string kind = attributes.text("kind");
  check_internal(std::ranges::count(kKinds, kind) == 1, "{}: kind \"{}\"", kOp, kind);
  const auto weights = attributes.numbers("pos_weight");
  if (weights.size() > 1 && static_cast<int64_t>(weights.size()) != inputs[0].shape[-1]) {
    fail(ExitCode::usage, "{}: {} numbers of pos_weight for {} outputs", kOp, weights.size(),
         inputs[0].shape[-1]);
  }
}

SpecList infer_elementwise_loss(SpecSpan, const Attributes& attributes) {
  const bool counts = attributes.text("kind") == "binary_cross_entropy";
  return SpecList(counts ? 2 : 1, {Shape{1}, DType::f64});
}

std::vector<ValueId> gradient_elementwise_loss(const GradientRequest& r) {
  return {r.emitter.emit1("elementwise_loss_backward",
                          {r.inputs[0], r.inputs[1], r.output_gradients[0]}, r.attributes),
          kNoValue};
}

}  // namespace

constinit const OpDef kElementwiseLossOp{
    .name = "elementwise_loss",
    .doc = "mse, l1, huber, smooth_l1 or binary cross-entropy, summed over all elements",
    .signature = "x[N,*] targets[N,*]:sum",
    .check = check_elementwise_loss,
    .infer = infer_elementwise_loss,
    .gradient = gradient_elementwise_loss,
    .sums_rows = true};
constinit const OpDef kElementwiseLossBackwardOp{
    .name = "elementwise_loss_backward",
    .doc = "dx = dloss·(derivative of the loss by x)",
    .signature = "x[*] targets[*]:sum dloss[1]:f64 -> dx[*]",
    .check = check_elementwise_loss,
    .in_place_allowed = true};

}  // namespace dltrain
