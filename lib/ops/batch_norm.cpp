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

// Returns true with "relu", the only supported activation.
bool has_relu(std::string_view op, const Attributes& attributes) {
  const std::string activation = attributes.text("activation");
  check_internal(activation.empty() || activation == "relu", "{}: activation {}", op, activation);
  return !activation.empty();
}

void check_batch_norm(SpecSpan inputs, const Attributes& attributes) {
  check_internal(inputs.size() == 3 || has_relu("batch_norm", attributes),
                 "batch_norm: a residual without activation");
}
void check_batch_norm_backward(SpecSpan inputs, const Attributes& attributes) {
  check_internal((inputs.size() == 6) == has_relu("batch_norm_backward", attributes),
                 "batch_norm_backward: beta without activation");
}

std::vector<ValueId> gradient_batch_norm(const GradientRequest& r) {
  check_internal(!has_relu("batch_norm", r.attributes),
                 "batch_norm: an activation is fused after the reverse pass only");
  return r.emitter.emit(
      "batch_norm_backward",
      {r.inputs[0], r.output_gradients[0], r.inputs[1], r.outputs[1], r.outputs[2]}, r.attributes);
}

// Channels may be sharded; statistics are those of all samples.
std::optional<std::vector<Placement>> place_batch_norm(SpecSpan inputs, const Attributes&,
                                                       std::span<const Placement> p) {
  const Placement channels = p[0].moved_to(0);
  const bool fits = p[0].kind == Placement::sharded &&
                    p[0].dimension == inputs[0].shape.rank() - 1 && p.size() == 3 &&
                    p[1] == channels && p[2] == channels;
  return fits ? std::optional(std::vector{p[0], channels, channels}) : std::nullopt;
}

}  // namespace

constinit const OpDef kBatchNormOp{.name = "batch_norm",
                                   .doc = "normalises each channel by the micro-batch's statistics",
                                   .signature =
                                       "x[N,*,C] gamma[C]:sum beta[C]:sum residual[N,*,C]? -> "
                                       "y[N,*,C] mean[C]:sum variance[C]:sum",
                                   .check = check_batch_norm,
                                   .gradient = gradient_batch_norm,
                                   .place = place_batch_norm,
                                   .cost = cost_an_element<8>,
                                   .autocast = CastPolicy::follow_first,
                                   .mixes_samples = true};
constinit const OpDef kBatchNormBackwardOp{
    .name = "batch_norm_backward",
    .doc = "dx, dgamma, dbeta of batch_norm",
    .signature =
        "x[N,*,C] dy[N,*,C] gamma[C]:sum mean[C]:sum variance[C]:sum beta[C]:sum? -> dx[N,*,C] "
        "dgamma[C]:sum dbeta[C]:sum",
    .check = check_batch_norm_backward,
    .cost = cost_an_element<14>};
constinit const OpDef kBatchNormInferenceOp{
    .name = "batch_norm_inference",
    .doc = "normalises each channel by given statistics",
    .signature = "x[N,*,C] gamma[C]:sum beta[C]:sum mean[C]:sum variance[C]:sum -> y[N,*,C]",
    .cost = cost_an_element<2>,
    .autocast = CastPolicy::follow_first,
    .token_axis = tokens_before_last};
constinit const OpDef kBatchNormUpdateOp{.name = "batch_norm_update",
                                         .doc = "updates the running statistics, once a step",
                                         .signature =
                                             "step running_mean[C] running_variance[C] mean_sum[C] "
                                             "variance_sum[C] -> running_mean! running_variance!",
                                         .has_effect = true};

}  // namespace dltrain
