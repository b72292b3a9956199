// softmax_cross_entropy: the summed negative log likelihood of integer targets.
//
//   logits   [..., C] floating; targets i32 [...]; a target equal to ignore_index is not counted
//   outputs  loss_sum f64 [1]; log_sum_exp [...] (accumulation dtype, kept for the backward);
//            correct f64 [1]: counted rows whose greatest logit (the first, on ties) is the target;
//            with the attribute row_losses f64 [...]: the terms of loss_sum, 0 for ignored rows
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
// softmax_cross_entropy_gradient(logits, targets, dloss f64 [1]) → dlogits, loss_sum, correct,
//   perhaps row_losses: both of these for a loss whose seed is known before (passes/chunk_loss.h),
//   so that a kernel can read the logits once. dlogits may be written over them as well. It has no
//   shards.
//
// Logits of a shard: a rank has the classes from first_class on, of all_classes. Each computes
//   cross_entropy_parts(logits, targets) → parts [rows, 5] in the accumulation dtype, of each row:
//     log Σ exp(logits); the greatest logit; the target's logit, 0 if another rank has it; 1 if
//     that is the first of the greatest, else 0; the sum of the logits (0 without label smoothing)
// and softmax_cross_entropy(logits, targets, parts [ranks · rows, 5]) computes loss, log_sum_exp
// and correct of all classes from the parts of the ranks, one after another, without the logits.
// The gradient is that of the rank's logits.
//
// Attributes of all: first_class (integer, 0), all_classes (integer, 0: those of the logits).
// Attributes of the loss: ignore_index (integer, −100), label_smoothing, z_loss (numbers, 0);
// classes (integer, 0: all): the columns from there on only pad the rows (passes/chunk_loss.h).
// They are not classes, and their gradient is 0. The data path rejects targets outside [0, C) other
// than ignore_index before they get here.
#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

constexpr int64_t kParts = 5;  // numbers of a row

void check_cross_entropy(SpecSpan inputs, const Attributes& attributes) {
  cross_entropy_classes(inputs[0], attributes);
}

SpecList infer_parts(SpecSpan inputs, const Attributes&) {
  return {{Shape{inputs[1].shape.elements(), kParts}, accumulation_dtype(inputs[0].dtype)}};
}

// Emits the parts of a rank, one message, and the loss of all.
std::vector<ValueId> shard_cross_entropy(const ShardedNode& node) {
  const Placement& logits = node.placements[0];
  const int last = node.inputs[0].shape.rank() - 1;
  if (logits.kind != Placement::sharded || logits.dimension != last || logits.parts.size() != 1 ||
      node.placements[1] != kReplicated) {
    return {};
  }
  Attributes attributes = node.attributes;
  attributes.set("first_class", cut_ranges(logits.parts, node.rank).front().offset);
  attributes.set("all_classes", node.inputs[0].shape[last]);
  std::vector<ValueId> inputs{node.values[0], node.values[1]};
  inputs.push_back(
      node.gathered_rows(node.emitter.emit1("cross_entropy_parts", inputs, attributes)));
  return node.emitter.emit("softmax_cross_entropy", inputs, attributes);
}

std::vector<ValueId> gradient_softmax_cross_entropy(const GradientRequest& r) {
  return {r.emitter.emit1("softmax_cross_entropy_backward",
                          {r.inputs[0], r.inputs[1], r.outputs[1], r.output_gradients[0]},
                          r.attributes),
          kNoValue, kNoValue};
}

Cost cost_softmax_cross_entropy(SpecSpan inputs, SpecSpan outputs, const Attributes&) {
  return {5.0 * static_cast<double>(inputs[0].shape.elements()),
          static_cast<double>(inputs[0].bytes() + inputs[1].bytes() + outputs[0].bytes())};
}

Cost cost_cross_entropy_gradient(SpecSpan inputs, SpecSpan outputs, const Attributes& attributes) {
  Cost cost = cost_softmax_cross_entropy(inputs, outputs, attributes);
  cost.flops *= 2;  // the loss and the gradient
  return cost;
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
    .signature =
        "logits[*,C] targets[*]:i32 parts[R,5]:sum? -> loss_sum[1]:f64 log_sum_exp[*]:sum "
        "correct[1]:f64 losses[*]:f64?@row_losses",
    .check = check_cross_entropy,
    .gradient = gradient_softmax_cross_entropy,
    .emit_sharded = shard_cross_entropy,
    .cost = cost_softmax_cross_entropy,
    .autocast = CastPolicy::logits,
    .sums_rows = true};
constinit const OpDef kCrossEntropyPartsOp{.name = "cross_entropy_parts",
                                           .doc = "what a rank's logits add to cross-entropy",
                                           .signature = "logits[*,C] targets[*]:i32",
                                           .infer = infer_parts,
                                           .cost = cost_softmax_cross_entropy};
constinit const OpDef kSoftmaxCrossEntropyBackwardOp{
    .name = "softmax_cross_entropy_backward",
    .doc = "dlogits = dloss·(softmax(logits) − targets)",
    .signature = "logits[*,C] targets[*]:i32 log_sum_exp[*]:sum dloss[1]:f64 -> dlogits[*,C]",
    .check = check_cross_entropy,
    .cost = cost_softmax_cross_entropy,
    .in_place_allowed = true};
constinit const OpDef kSoftmaxCrossEntropyGradientOp{
    .name = "softmax_cross_entropy_gradient",
    .doc = "the loss of softmax_cross_entropy and its gradient, in one pass over the logits",
    .signature =
        "logits[*,C] targets[*]:i32 dloss[1]:f64 -> dlogits[*,C] loss_sum[1]:f64 correct[1]:f64 "
        "losses[*]:f64?@row_losses",
    .check = check_cross_entropy,
    .cost = cost_cross_entropy_gradient,
    .in_place_allowed = true};

}  // namespace dltrain
