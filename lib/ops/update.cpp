// Ops of the update segment. They read and write StepState (f: StepState::out) and state in place;
// every write to state is skipped when the step's gradients are not finite (StepResults::finite).
//
// loss_seed(step_state [, loss f64 [N]]): the seed of the backward, loss_scale · inverse_valid with
//   N = 1; with the attribute `weights` (N numbers) loss_scale · weights. NaN where the loss is not
//   finite, so that the gradients are not either and the step is skipped.
// gradient_norm(step_state, g₁ … gₙ): writes StepResults: the Euclidean norm of all gradients,
//   divided by loss_scale, `finite`, gradient_factor = min(1, max_grad_norm / (norm + 1e-6)) /
//   loss_scale (1/loss_scale without clipping; PyTorch's clip_grad_norm_), and counts the update
//   when finite. With in.scale_growth_interval it moves out.loss_scale: halved (not below 1) by a
//   step that is not finite, doubled after so many finite steps. The sum of squares is taken in
//   double over fixed chunks, so that it never depends on threads.
//
// Optimizers are emitted one node a parameter, (step_state, p, g, then its moments), and packed
// into one call over n parameters: (step_state, p₁ … pₙ, g₁ … gₙ, then n of each kind of moment).
// Below, g is the gradient times StepResults::gradient_factor, limited to ±max_grad_value where
// that is set (PyTorch's clip_grad_value_); lr is StepInputs::learning_rate times lr_scale of the
// tensor's group; λ is weight_decay of its group; t is StepResults::updates. Common attributes:
// count (n, 1 if absent); group (index of each tensor's group; absent: all in group 0) and, a
// number for each group, lr_scale (absent: one group, 1) and weight_decay (absent: one group, 0).
//
// sgd_update(…, [m]): PyTorch's SGD. g ← g + λp; m ← momentum·m + (1 − dampening)g, in the first
//   update m ← g; p ← p − lr·m (nesterov: p − lr·(g + momentum·m)). Without momentum there are no
//   m. Attributes: momentum, dampening, nesterov.
// adam_update(…, m, v): Kingma & Ba 2015, algorithm 1, with PyTorch's L2 decay: g ← g + λp;
//   m ← β₁m + (1−β₁)g; v ← β₂v + (1−β₂)g²; p ← p − lr·(m/(1−β₁ᵗ)) / (√(v/(1−β₂ᵗ)) + epsilon).
//   Attributes: beta1, beta2, epsilon.
// adamw_update(…, m, v): the same with decoupled decay instead (Loshchilov & Hutter 2019,
//   algorithm 2): p ← p − lr·λ·p, and g stays as it is.
// adagrad_update(…, s): Duchi, Hazan & Singer 2011, as PyTorch's: g ← g + λp; s ← s + g²;
//   p ← p − lr/(1 + (t−1)·lr_decay) · g / (√(s + initial_accumulator_value) + epsilon).
// rmsprop_update(…, s [, a] [, m]): Tieleman & Hinton 2012, as PyTorch's: g ← g + λp;
//   s ← αs + (1−α)g²; centered (Graves 2013): a ← αa + (1−α)g and s − a² (at least 0) in place of
//   s; d = g / (√s + epsilon); momentum: m ← momentum·m + d and p ← p − lr·m, else p ← p − lr·d.
//   Attributes: alpha, epsilon, centered, momentum.
// lion_update(…, m): Chen et al. 2023, algorithm 2: p ← p − lr·(sign(β₁m + (1−β₁)g) + λp);
//   m ← β₂m + (1−β₂)g. Attributes: beta1, beta2.
//
// Moments in 8 bits (Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization"): with
// the attribute `block` (kMomentBlock), moments are u8 codes (tensor/block_codes.h: dynamic_codes,
// with sign but for v), and after them there is a kind of scales for each kind of moment, one a
// block of the flat tensor. A moment is scale · code. Each update computes it, and the formula, in
// f32; the new scale is the greatest magnitude of the block, and the new code the nearest to moment
// / scale, but v > 0 never gets the code of 0 (shared/moment_codes.h). The parts of a tensor that
// ranks own begin at blocks.
//
// Optimizers that need norms of whole tensors are in update_adaptive.cpp.
//
// Parameters, gradients and moments have the accumulation dtype (f32 masters). Of an optimizer
// whose elements are independent all parameters may be bf16 instead, without masters (Gupta et al.
// 2015; Zamirai et al. 2020): the attribute `rounding` then gives each a random stream. The new
// value is computed in f32 and rounded stochastically (round_at_random) with random_bits(seed of
// the run, stream, step, element), which do not depend on ranks, threads or engine.
#include "ops/update.h"

#include <algorithm>

#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"

namespace dltrain {
void check_update(SpecSpan inputs, const Attributes& attributes) {
  const auto count = static_cast<size_t>(attributes.integer("count", 1));
  const std::vector<int64_t> group = attributes.integers("group");
  const auto groups = static_cast<int64_t>(attributes.numbers("lr_scale", {1}).size());
  check_internal(
      groups == static_cast<int64_t>(attributes.numbers("weight_decay", {0}).size()) &&
          (group.empty() ? groups == 1 : group.size() == count) &&
          std::all_of(group.begin(), group.end(), [&](int64_t g) { return g >= 0 && g < groups; }),
      "groups of parameters do not agree");
  check_internal(!attributes.has("rounding") || attributes.integers("rounding").size() == count,
                 "random streams of {} parameters", count);
  if (!attributes.has("block")) return;
  check_internal(attributes.integer("block") == kMomentBlock, "blocks of another size");
  for (size_t i = 1 + 3 * count; i < inputs.size(); ++i) {
    const bool scales = inputs[i].dtype == DType::f32 || inputs[i].dtype == DType::f64;
    check_internal(!scales || inputs[i].shape[0] ==
                                  moment_blocks(inputs[1 + (i - 1) % count].shape.elements()),
                   "scales that do not fit the blocks of a parameter");
  }
}

namespace {

SpecList infer_seed(SpecSpan inputs, const Attributes& attributes) {
  const bool has_loss = inputs.size() > 1 && !is_absent(inputs[1]);
  const TensorSpec seed = has_loss ? inputs[1] : TensorSpec{Shape{1}, DType::f64};
  check_internal(seed.shape[0] == static_cast<int64_t>(attributes.numbers("weights", {1}).size()),
                 "loss_seed: weights of {} losses", seed.shape[0]);
  return {seed};
}

SpecList infer_update_norm(SpecSpan inputs, const Attributes&) {
  expect_inputs("gradient_norm", inputs, 2, SIZE_MAX);
  expect_step_state("gradient_norm", inputs[0]);
  expect_one_float_dtype("gradient_norm", inputs.subspan(1));
  return {inputs[0]};
}

constexpr const char* kAdamSignature =
    "step | p[*]:parameter g[*] m[*]:moment v[*]:moment ms[M]?@block vs[V]?@block "
    "copy[*]:low?@copies -> p! m! v! ms! vs! copy!";

// An optimizer whose elements, or blocks of them, are independent.
constexpr OpDef element_update(std::string_view name, std::string_view doc, Signature signature) {
  return {.name = name,
          .doc = doc,
          .signature = signature,
          .check = check_update,
          .update = UpdateKind::optimizer,
          .independent_elements = true,
          .has_effect = true};
}

}  // namespace

constinit const OpDef kLossSeedOp{.name = "loss_seed",
                                  .doc = "loss_scale · inverse_valid: the seed of the backward",
                                  .signature = "step loss[N]:f64?",
                                  .infer = infer_seed};
constinit const OpDef kGradientNormOp{.name = "gradient_norm",
                                      .doc = "gradient norm, finite flag and clipping factor",
                                      .infer = infer_update_norm,
                                      .aliases = alias_first,
                                      .update = UpdateKind::norm,
                                      .has_effect = true};
constinit const OpDef kSgdUpdateOp =
    element_update("sgd_update", "SGD with momentum over all parameters",
                   "step | p[*]:parameter g[*] m[*]:moment?@momentum ms[M]?@block "
                   "copy[*]:low?@copies -> p! m! ms! copy!");
constinit const OpDef kAdamUpdateOp =
    element_update("adam_update", "Adam with L2 decay over all parameters", kAdamSignature);
constinit const OpDef kAdamwUpdateOp =
    element_update("adamw_update", "AdamW over all parameters", kAdamSignature);
constinit const OpDef kAdagradUpdateOp =
    element_update("adagrad_update", "Adagrad over all parameters",
                   "step | p[*]:parameter g[*] s[*] copy[*]:low?@copies -> p! s! copy!");
constinit const OpDef kRmspropUpdateOp =
    element_update("rmsprop_update", "RMSprop over all parameters",
                   "step | p[*]:parameter g[*] s[*] a[*]?@centered "
                   "m[*]?@momentum copy[*]:low?@copies -> p! s! a! m! copy!");
constinit const OpDef kLionUpdateOp =
    element_update("lion_update", "Lion over all parameters",
                   "step | p[*]:parameter g[*] m[*]:moment ms[M]?@block copy[*]:low?@copies -> "
                   "p! m! ms! copy!");

}  // namespace dltrain
