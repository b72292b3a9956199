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

Shape rows_of_weighted_cross_entropy(const Shape& logits) {
  return Shape(logits.dims().first(static_cast<size_t>(logits.rank() - 1)));
}

void expect_targets_weighted_cross_entropy(SpecSpan inputs, const Attributes& attributes) {
  constexpr std::string_view kOp = "weighted_cross_entropy";
  expect_rank(kOp, "logits", inputs[0].shape, 2, Shape::kMaxRank);
  expect_one_float_dtype(kOp, inputs.first(1));
  if (is_floating(inputs[1].dtype)) {
    expect_shape(kOp, "targets", inputs[1].shape, inputs[0].shape);
    expect_dtype(kOp, "targets", inputs[1], accumulation_dtype(inputs[0].dtype));
  } else {
    expect_shape(kOp, "targets", inputs[1].shape, rows_of_weighted_cross_entropy(inputs[0].shape));
    expect_dtype(kOp, "targets", inputs[1], DType::i32);
    check_internal(!attributes.boolean("relative"), "labels have no entropy");
  }
  const auto weights = attributes.numbers("class_weights");
  if (!weights.empty() && static_cast<int64_t>(weights.size()) != inputs[0].shape[-1]) {
    fail(ExitCode::usage, "{}: {} class weights for {} classes", kOp, weights.size(),
         inputs[0].shape[-1]);
  }
}

// Checks the optional last input.
void expect_labels_weighted_cross_entropy(SpecSpan inputs, size_t at) {
  constexpr std::string_view kOp = "weighted_cross_entropy";
  if (inputs.size() <= at) return;
  check_internal(is_floating(inputs[1].dtype), "labels given twice");
  expect_shape(kOp, "labels", inputs[at].shape, rows_of_weighted_cross_entropy(inputs[0].shape));
  expect_dtype(kOp, "labels", inputs[at], DType::i32);
}

SpecList infer_weighted_cross_entropy(SpecSpan inputs, const Attributes& attributes) {
  expect_inputs("weighted_cross_entropy", inputs, 2, 3);
  expect_targets_weighted_cross_entropy(inputs, attributes);
  expect_labels_weighted_cross_entropy(inputs, 2);
  return {{Shape{1}, DType::f64},
          {rows_of_weighted_cross_entropy(inputs[0].shape), accumulation_dtype(inputs[0].dtype)},
          {Shape{1}, DType::f64}};
}

std::vector<ValueId> gradient_weighted_cross_entropy(const GradientRequest& r) {
  std::vector<ValueId> inputs{r.inputs[0], r.inputs[1], r.outputs[1], r.output_gradients[0]};
  std::vector<ValueId> out(r.inputs.size(), kNoValue);
  if (r.inputs.size() == 3) inputs.push_back(r.inputs[2]);
  out[0] = r.emitter.emit1("weighted_cross_entropy_backward", std::move(inputs), r.attributes);
  return out;
}

SpecList infer_weighted_cross_entropy_backward(SpecSpan inputs, const Attributes& attributes) {
  constexpr std::string_view kOp = "weighted_cross_entropy_backward";
  expect_inputs(kOp, inputs, 4, 5);
  expect_targets_weighted_cross_entropy(inputs, attributes);
  expect_labels_weighted_cross_entropy(inputs, 4);
  expect_shape(kOp, "log_sum_exp", inputs[2].shape,
               rows_of_weighted_cross_entropy(inputs[0].shape));
  expect_dtype(kOp, "log_sum_exp", inputs[2], accumulation_dtype(inputs[0].dtype));
  expect_shape(kOp, "dloss", inputs[3].shape, Shape{1});
  expect_dtype(kOp, "dloss", inputs[3], DType::f64);
  return {inputs[0]};
}

Cost cost_weighted_cross_entropy(SpecSpan inputs, SpecSpan outputs, const Attributes&) {
  return {8.0 * static_cast<double>(inputs[0].shape.elements()),
          static_cast<double>(inputs[0].bytes() + inputs[1].bytes() + outputs[0].bytes())};
}

}  // namespace

constinit const OpDef kWeightedCrossEntropyOp{
    .name = "weighted_cross_entropy",
    .doc = "summed cross-entropy with class weights, of labels or distributions",
    .infer = infer_weighted_cross_entropy,
    .gradient = gradient_weighted_cross_entropy,
    .cost = cost_weighted_cross_entropy};
constinit const OpDef kWeightedCrossEntropyBackwardOp{
    .name = "weighted_cross_entropy_backward",
    .doc = "dlogits = dloss·(softmax(logits)·Σq − q), q the weighted targets",
    .infer = infer_weighted_cross_entropy_backward,
    .cost = cost_weighted_cross_entropy,
    .in_place_allowed = true};

}  // namespace dltrain
