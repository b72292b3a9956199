// Ops around the optimizer's update. Like all writes to state they are skipped in a step that is
// not finite.
//
// clip_percentile(step_state, norms f32 [window]): after gradient_norm. Let n be the smaller of
//   window and the updates before this one. With n ≥ min_history, gradient_factor is multiplied by
//   min(1, factor·q / (grad_norm + 1e-6)), q the percentile (nearest rank: the
//   ⌈percentile/100·n⌉-th smallest) of the norms of the last n updates. Then grad_norm takes the
//   oldest place: norms[(updates − 1) mod window]. Norms are those before clipping (Seetharaman et
//   al. 2020, AutoClip). Attributes: percentile, min_history, factor.
// ema_update(step_state, s₁ … sₙ, e₁ … eₙ): e ← e + (1 − d)(s − e), the average of s over updates;
//   with k = updates − start: k ≤ 1: e ← s; else d = decay, with `warmup` at most (1 + k)/(10 + k).
//   s are the values after the update. Attributes: count (n, 1 if absent), decay,
//   start, warmup.
#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

SpecList infer_clip(SpecSpan inputs, const Attributes&) {
  expect_inputs("clip_percentile", inputs, 2, 2);
  expect_step_state("clip_percentile", inputs[0]);
  expect_rank("clip_percentile", "the norms", inputs[1].shape, 1, 1);
  expect_one_float_dtype("clip_percentile", inputs.subspan(1));
  return {inputs[0], inputs[1]};
}
std::vector<int> aliases_clip(SpecSpan, const Attributes&) {
  return {0, 1};
}

SpecList infer_ema(SpecSpan inputs, const Attributes& attributes) {
  const auto count = static_cast<size_t>(attributes.integer("count", 1));
  expect_inputs("ema_update", inputs, 1 + 2 * count, 1 + 2 * count);
  expect_step_state("ema_update", inputs[0]);
  expect_one_float_dtype("ema_update", inputs.subspan(1));
  for (size_t i = 0; i < count; ++i) {
    expect_shape("ema_update", "an average", inputs[1 + count + i].shape, inputs[1 + i].shape);
  }
  return {inputs.begin() + 1 + static_cast<std::ptrdiff_t>(count), inputs.end()};
}
std::vector<int> aliases_ema(SpecSpan, const Attributes& attributes) {
  const int count = static_cast<int>(attributes.integer("count", 1));
  std::vector<int> out;
  for (int i = 0; i < count; ++i) out.push_back(1 + count + i);
  return out;
}

}  // namespace

constinit const OpDef kClipPercentileOp{.name = "clip_percentile",
                                        .doc = "clips to a percentile of recent gradient norms",
                                        .infer = infer_clip,
                                        .aliases = aliases_clip,
                                        .has_effect = true};
constinit const OpDef kEmaUpdateOp{.name = "ema_update",
                                   .doc = "moving average of parameters and buffers",
                                   .infer = infer_ema,
                                   .aliases = aliases_ema,
                                   .update = UpdateKind::average,
                                   .independent_elements = true,
                                   .has_effect = true};

}  // namespace dltrain
