// Ops of the update segment. They read and write StepState (f: StepState::out) and state in place;
// every write to state is skipped when the step's gradients are not finite (StepResults::finite).
//
// loss_seed(step_state [, loss_sum f64 [1]]): loss_scale · inverse_valid, where the backward
// starts;
//   NaN when the loss is not finite, so that the gradients are not either and the step is skipped.
// gradient_norm(step_state, g₁ … gₙ): writes StepResults: the Euclidean norm of all gradients
// divided
//   by loss_scale, `finite`, gradient_factor = min(1, max_grad_norm / (norm + 1e-6)) / loss_scale
//   (1/loss_scale without clipping; PyTorch's clip_grad_norm_), and counts the update when finite.
//   With in.scale_growth_interval it moves out.loss_scale: halved (not below 1) by a step that is
//   not finite, doubled after so many finite steps. The sum of squares is taken in double over
//   fixed chunks, so that it never depends on threads.
// sgd_update(step_state, p₁ … pₙ, g₁ … gₙ [, m₁ … mₙ]): g ← g·factor + weight_decay·p;
//   m ← momentum·m + g; p ← p − lr·m (nesterov: p − lr·(g + momentum·m)); PyTorch's SGD.
//   Without momentum there are no m. Attributes: count (n), momentum, nesterov, weight_decay.
// adamw_update(step_state, p…, g…, m…, v…): decoupled decay (Loshchilov & Hutter 2019):
//   p ← p − lr·weight_decay·p; m ← β₁m + (1−β₁)g; v ← β₂v + (1−β₂)g²;
//   p ← p − lr·(m/(1−β₁ᵗ)) / (√(v/(1−β₂ᵗ)) + epsilon), t = StepResults::updates.
//   Attributes: count, beta1, beta2, epsilon, weight_decay.
//
// Parameters, gradients and moments have the accumulation dtype (f32 masters).
#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

SpecList infer_norm(SpecSpan inputs, const Attributes&) {
  expect_inputs("gradient_norm", inputs, 2, SIZE_MAX);
  expect_step_state("gradient_norm", inputs[0]);
  expect_one_float_dtype("gradient_norm", inputs.subspan(1));
  return {inputs[0]};
}
std::vector<int> aliases_norm(SpecSpan, const Attributes&) {
  return {0};
}

// Inputs after the state: `roles` lists of `count` tensors, alike in shape.
SpecList infer_update(std::string_view op, SpecSpan inputs, const Attributes& attributes,
                      size_t roles) {
  const auto count = static_cast<size_t>(attributes.integer("count"));
  expect_inputs(op, inputs, 1 + roles * count, 1 + roles * count);
  expect_step_state(op, inputs[0]);
  expect_one_float_dtype(op, inputs.subspan(1));
  for (size_t role = 1; role < roles; ++role) {
    for (size_t i = 0; i < count; ++i) {
      expect_shape(op, "a gradient or moment", inputs[1 + role * count + i].shape,
                   inputs[1 + i].shape);
    }
  }
  // Written in place: parameters and moments (every role but the gradients).
  SpecList out(inputs.begin() + 1, inputs.begin() + 1 + static_cast<std::ptrdiff_t>(count));
  out.insert(out.end(), inputs.begin() + 1 + static_cast<std::ptrdiff_t>(2 * count), inputs.end());
  return out;
}

std::vector<int> aliases_update(const Attributes& attributes, int roles) {
  const int count = static_cast<int>(attributes.integer("count"));
  std::vector<int> out;
  for (int role = 0; role < roles; ++role) {
    for (int i = 0; role != 1 && i < count; ++i) out.push_back(1 + role * count + i);
  }
  return out;
}

int sgd_roles(const Attributes& attributes) {
  return attributes.number("momentum") != 0 ? 3 : 2;
}

SpecList infer_sgd(SpecSpan inputs, const Attributes& attributes) {
  return infer_update("sgd_update", inputs, attributes, static_cast<size_t>(sgd_roles(attributes)));
}
std::vector<int> aliases_sgd(SpecSpan, const Attributes& attributes) {
  return aliases_update(attributes, sgd_roles(attributes));
}
SpecList infer_adamw(SpecSpan inputs, const Attributes& attributes) {
  return infer_update("adamw_update", inputs, attributes, 4);
}
std::vector<int> aliases_adamw(SpecSpan, const Attributes& attributes) {
  return aliases_update(attributes, 4);
}

SpecList infer_seed(SpecSpan inputs, const Attributes&) {
  expect_inputs("loss_seed", inputs, 1, 2);
  expect_step_state("loss_seed", inputs[0]);
  if (inputs.size() == 2) {
    expect_shape("loss_seed", "the loss", inputs[1].shape, Shape{1});
    expect_dtype("loss_seed", "the loss", inputs[1], DType::f64);
  }
  return {{Shape{1}, DType::f64}};
}

}  // namespace

constinit const OpDef kLossSeedOp{.name = "loss_seed",
                                  .doc = "loss_scale · inverse_valid: where the backward starts",
                                  .infer = infer_seed};
constinit const OpDef kGradientNormOp{.name = "gradient_norm",
                                      .doc = "gradient norm, finite flag and clipping factor",
                                      .infer = infer_norm,
                                      .aliases = aliases_norm,
                                      .has_effect = true};
constinit const OpDef kSgdUpdateOp{.name = "sgd_update",
                                   .doc = "SGD with momentum over all parameters of a group",
                                   .infer = infer_sgd,
                                   .aliases = aliases_sgd,
                                   .has_effect = true};
constinit const OpDef kAdamwUpdateOp{.name = "adamw_update",
                                     .doc = "AdamW over all parameters of a group",
                                     .infer = infer_adamw,
                                     .aliases = aliases_adamw,
                                     .has_effect = true};

}  // namespace dltrain
