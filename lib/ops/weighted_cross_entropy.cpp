// weighted_cross_entropy: cross-entropy of softmax with class weights, against labels or against
// distributions over the classes (mixed samples, a teacher's output).
//
//   logits   [..., C] floating
//   targets  i32 [...], −100: not counted; or like the logits, a row that begins with NaN: not
//            counted
//   labels   optional, with distributions only: i32 [...], rows below 0 do not count either
//   outputs  loss_sum f64 [1]; log_sum_exp [...] (accumulation dtype, kept for the backward);
//            correct f64 [1]: counted rows whose greatest logit (the first, on ties) is at the
//            label, or at the greatest (first) target
//
// With t the target distribution (one-hot for a label), ε the label smoothing and w the class
// weights (1 without), each row adds scale · Σ_c −q_c·log softmax(x)_c with
//   q_c = w_c·((1−ε)·t_c + ε/C),
// which is PyTorch's cross_entropy, sum not mean. With `relative` the entropy Σ t·log t is added:
// the Kullback-Leibler divergence from softmax(x) to t (0·log 0 = 0).
//
// weighted_cross_entropy_backward(logits, targets, log_sum_exp, dloss f64 [1][, labels]) → dlogits:
//   dlogits = dloss · scale · (softmax(x)·Σ_c q_c − q), 0 for rows that do not count.
//
// Attributes of both: class_weights (numbers: C of them, or none), label_smoothing (number, 0),
// relative (boolean, false; distributions only), scale (number, 1). No gradient flows to targets.
#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

constexpr std::string_view kWeightedCrossEntropy = "weighted_cross_entropy";

// Targets are labels, one for each row, or distributions like the logits.
void check_targets(SpecSpan inputs, const Attributes& attributes, bool labels) {
  const Shape& logits = inputs[0].shape;
  const Shape rows(logits.dims().first(static_cast<size_t>(logits.rank() - 1)));
  const bool distributions = is_floating(inputs[1].dtype);
  expect_shape(kWeightedCrossEntropy, "targets", inputs[1].shape, distributions ? logits : rows);
  expect_dtype(kWeightedCrossEntropy, "targets", inputs[1],
               distributions ? accumulation_dtype(inputs[0].dtype) : DType::i32);
  check_internal(distributions || !attributes.boolean("relative"), "labels have no entropy");
  check_internal(distributions || !labels, "labels given twice");
  const auto weights = attributes.numbers("class_weights");
  if (!weights.empty() && static_cast<int64_t>(weights.size()) != logits[-1]) {
    fail(ExitCode::usage, "{}: {} class weights for {} classes", kWeightedCrossEntropy,
         weights.size(), logits[-1]);
  }
}
void check_forward(SpecSpan inputs, const Attributes& attributes) {
  check_targets(inputs, attributes, inputs.size() == 3);
}
void check_backward(SpecSpan inputs, const Attributes& attributes) {
  check_targets(inputs, attributes, inputs.size() == 5);
}

std::vector<ValueId> gradient_weighted_cross_entropy(const GradientRequest& r) {
  std::vector<ValueId> inputs{r.inputs[0], r.inputs[1], r.outputs[1], r.output_gradients[0]};
  std::vector<ValueId> out(r.inputs.size(), kNoValue);
  if (r.inputs.size() == 3) inputs.push_back(r.inputs[2]);
  out[0] = r.emitter.emit1("weighted_cross_entropy_backward", std::move(inputs), r.attributes);
  return out;
}

Cost cost_weighted_cross_entropy(SpecSpan inputs, SpecSpan outputs, const Attributes&) {
  return {8.0 * static_cast<double>(inputs[0].shape.elements()),
          static_cast<double>(inputs[0].bytes() + inputs[1].bytes() + outputs[0].bytes())};
}

}  // namespace

constinit const OpDef kWeightedCrossEntropyOp{
    .name = "weighted_cross_entropy",
    .doc = "summed cross-entropy with class weights, of labels or distributions",
    .signature =
        "logits[*,C] targets[.]:any labels[*]:i32? -> loss_sum[1]:f64 log_sum_exp[*]:sum "
        "correct[1]:f64",
    .check = check_forward,
    .gradient = gradient_weighted_cross_entropy,
    .cost = cost_weighted_cross_entropy,
    .sums_rows = true};
constinit const OpDef kWeightedCrossEntropyBackwardOp{
    .name = "weighted_cross_entropy_backward",
    .doc = "dlogits = dloss·(softmax(logits)·Σq − q), q the weighted targets",
    .signature =
        "logits[*,C] targets[.]:any log_sum_exp[*]:sum dloss[1]:f64 labels[*]:i32? -> dlogits[*,C]",
    .check = check_backward,
    .cost = cost_weighted_cross_entropy,
    .in_place_allowed = true};

}  // namespace dltrain
