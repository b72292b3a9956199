// softmax_cross_entropy: the summed negative log likelihood of integer targets.
//
//   logits   [..., C] floating; targets i32 [...]; a target equal to ignore_index is not counted
//   outputs  loss_sum f64 [1]; log_sum_exp [...] (accumulation dtype, kept for the backward);
//            correct f64 [1]: counted rows whose greatest logit (the first, on ties) is the target
//
// With label smoothing ε the target distribution is (1-ε)·one_hot + ε/C (Szegedy et al. 2016). With
// z_loss ζ every counted row adds ζ·log_sum_exp² to the loss, which keeps the logits from drifting
// (Chowdhery et al. 2022). loss_sum is a sum over the micro-batch: the seed (loss_seed) divides by
// the global batch's valid targets, which is right for any masks, accumulation and ranks.
//
// softmax_cross_entropy_backward(logits, targets, log_sum_exp, dloss f64 [1]) → dlogits:
//   dlogits = dloss · ((1 + 2ζ·log_sum_exp)·softmax(logits) − target distribution), 0 for ignored
//   rows. It may be written over the logits, so that a sequence needs them once, in their dtype.
//
// Attributes of both: ignore_index (integer, −100), label_smoothing, z_loss (numbers, 0); classes
// (integer, 0: all): the columns from there on only pad the rows (passes/chunk_loss.h). They are
// not classes, and their gradient is 0. The data path rejects targets outside [0, C) other than
// ignore_index before they get here.
#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

void check_cross_entropy(SpecSpan inputs, const Attributes& attributes) {
  cross_entropy_classes(inputs[0], attributes);
}

std::vector<ValueId> gradient_softmax_cross_entropy(const GradientRequest& r) {
  return {r.emitter.emit1("softmax_cross_entropy_backward",
                          {r.inputs[0], r.inputs[1], r.outputs[1], r.output_gradients[0]},
                          r.attributes),
          kNoValue};
}

Cost cost_softmax_cross_entropy(SpecSpan inputs, SpecSpan outputs, const Attributes&) {
  return {5.0 * static_cast<double>(inputs[0].shape.elements()),
          static_cast<double>(inputs[0].bytes() + inputs[1].bytes() + outputs[0].bytes())};
}

}  // namespace

int64_t cross_entropy_classes(const TensorSpec& logits, const Attributes& attributes) {
  const int64_t classes = attributes.integer("classes");
  check_internal(classes >= 0 && classes <= logits.shape[-1],
                 "softmax_cross_entropy: {} classes in {}", classes, to_string(logits));
  return classes == 0 ? logits.shape[-1] : classes;
}

constinit const OpDef kSoftmaxCrossEntropyOp{
    .name = "softmax_cross_entropy",
    .doc = "summed negative log likelihood of integer targets, and the number of correct rows",
    .signature = "logits[*,C] targets[*]:i32 -> loss_sum[1]:f64 log_sum_exp[*]:sum correct[1]:f64",
    .check = check_cross_entropy,
    .gradient = gradient_softmax_cross_entropy,
    .cost = cost_softmax_cross_entropy,
    .autocast = CastPolicy::logits};
constinit const OpDef kSoftmaxCrossEntropyBackwardOp{
    .name = "softmax_cross_entropy_backward",
    .doc = "dlogits = dloss·(softmax(logits) − targets)",
    .signature = "logits[*,C] targets[*]:i32 log_sum_exp[*]:sum dloss[1]:f64 -> dlogits[*,C]",
    .check = check_cross_entropy,
    .cost = cost_softmax_cross_entropy,
    .in_place_allowed = true};

}  // namespace dltrain
