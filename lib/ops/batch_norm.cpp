// batch_norm: y = (x − mean) / √(variance + epsilon) · gamma + beta over all axes but the last.
//
//   x [..., C]; gamma, beta [C]  → y like x; mean, variance [C] (biased) in the accumulation dtype
//   Statistics are those of the micro-batch (the ghost group). Attributes: epsilon, activation.
//   activation "relu", after an optional residual like x: y = relu(… + residual). Set by the fuse
//   pass, after the reverse pass.
// batch_norm_backward(x, dy, gamma, mean, variance (, beta)) → dx, dgamma, dbeta. With activation
//   "relu" it takes beta and is the gradient of relu(batch_norm(x)): dy counts where the forward,
//   computed again from mean and variance as they are stored, is above 0.
// batch_norm_inference(x, gamma, beta, mean, variance) → y: by statistics that are given.
// batch_norm_update(step_state, running_mean, running_variance, mean_sum, variance_sum):
//   running ← running + momentum·(sum / groups − running), the variance times `unbias` (n/(n−1), as
//   PyTorch keeps it). The sums run over the `groups` micro-batches of the global batch, so that
//   accumulation and ranks agree. Runs once a step; skipped when the step is not finite.
//   Attributes: momentum, groups, unbias (numbers).
//
// gamma, beta, running statistics and sums have the accumulation dtype of x.
#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"
#include "ops/token_axis.h"

namespace dltrain {
namespace {

// gamma, beta or a statistic of x.
void expect_channels_batch_norm(std::string_view op, const TensorSpec& found, const TensorSpec& x) {
  expect_shape(op, "a channel vector", found.shape, Shape{x.shape[-1]});
  expect_dtype(op, "a channel vector", found, accumulation_dtype(x.dtype));
}

// Returns true with "relu", the only supported activation.
bool has_relu(std::string_view op, const Attributes& attributes) {
  const std::string activation = attributes.text("activation");
  check_internal(activation.empty() || activation == "relu", "{}: activation {}", op, activation);
  return !activation.empty();
}

SpecList infer_batch_norm(SpecSpan inputs, const Attributes& attributes) {
  expect_inputs("batch_norm", inputs, 3, has_relu("batch_norm", attributes) ? 4 : 3);
  expect_rank("batch_norm", "the input", inputs[0].shape, 2, Shape::kMaxRank);
  for (size_t i = 1; i < 3; ++i) expect_channels_batch_norm("batch_norm", inputs[i], inputs[0]);
  if (inputs.size() == 4) {
    expect_shape("batch_norm", "the residual", inputs[3].shape, inputs[0].shape);
    expect_dtype("batch_norm", "the residual", inputs[3], inputs[0].dtype);
  }
  return {inputs[0], inputs[1], inputs[1]};
}

std::vector<ValueId> gradient_batch_norm(const GradientRequest& r) {
  check_internal(!has_relu("batch_norm", r.attributes),
                 "batch_norm: an activation is fused after the reverse pass only");
  return r.emitter.emit(
      "batch_norm_backward",
      {r.inputs[0], r.output_gradients[0], r.inputs[1], r.outputs[1], r.outputs[2]}, r.attributes);
}

SpecList infer_batch_norm_backward(SpecSpan inputs, const Attributes& attributes) {
  const size_t count = has_relu("batch_norm_backward", attributes) ? 6 : 5;
  expect_inputs("batch_norm_backward", inputs, count, count);
  expect_rank("batch_norm_backward", "the input", inputs[0].shape, 2, Shape::kMaxRank);
  expect_shape("batch_norm_backward", "dy", inputs[1].shape, inputs[0].shape);
  expect_dtype("batch_norm_backward", "dy", inputs[1], inputs[0].dtype);
  for (size_t i = 2; i < count; ++i)
    expect_channels_batch_norm("batch_norm_backward", inputs[i], inputs[0]);
  return {inputs[0], inputs[3], inputs[3]};
}

SpecList infer_inference(SpecSpan inputs, const Attributes&) {
  expect_inputs("batch_norm_inference", inputs, 5, 5);
  expect_rank("batch_norm_inference", "the input", inputs[0].shape, 2, Shape::kMaxRank);
  for (size_t i = 1; i < 5; ++i)
    expect_channels_batch_norm("batch_norm_inference", inputs[i], inputs[0]);
  return {inputs[0]};
}

SpecList infer_batch_norm_update(SpecSpan inputs, const Attributes&) {
  expect_inputs("batch_norm_update", inputs, 5, 5);
  expect_step_state("batch_norm_update", inputs[0]);
  for (size_t i = 2; i < 5; ++i) {
    expect_shape("batch_norm_update", "a channel vector", inputs[i].shape, inputs[1].shape);
    expect_dtype("batch_norm_update", "a channel vector", inputs[i], inputs[1].dtype);
  }
  return {inputs[1], inputs[2]};
}

std::vector<int> aliases_batch_norm_update(SpecSpan, const Attributes&) {
  return {1, 2};
}

}  // namespace

constinit const OpDef kBatchNormOp{.name = "batch_norm",
                                   .doc = "normalises each channel by the micro-batch's statistics",
                                   .infer = infer_batch_norm,
                                   .gradient = gradient_batch_norm,
                                   .cost = cost_an_element<8>,
                                   .autocast = CastPolicy::follow_first,
                                   .mixes_samples = true};
constinit const OpDef kBatchNormBackwardOp{.name = "batch_norm_backward",
                                           .doc = "dx, dgamma, dbeta of batch_norm",
                                           .infer = infer_batch_norm_backward,
                                           .cost = cost_an_element<14>};
constinit const OpDef kBatchNormInferenceOp{.name = "batch_norm_inference",
                                            .doc = "normalises each channel by given statistics",
                                            .infer = infer_inference,
                                            .cost = cost_an_element<2>,
                                            .autocast = CastPolicy::follow_first,
                                            .token_axis = tokens_before_last};
constinit const OpDef kBatchNormUpdateOp{.name = "batch_norm_update",
                                         .doc = "updates the running statistics, once a step",
                                         .infer = infer_batch_norm_update,
                                         .aliases = aliases_batch_norm_update,
                                         .has_effect = true};

}  // namespace dltrain
