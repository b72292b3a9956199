#include "optim/update_config.h"

namespace dltrain {

void ClipPercentile::describe(Fields& f) {
  f.number(
      "percentile", percentile,
      {.doc = "The percentile of the norms in the window (nearest rank)", .max = 100, .above = 0});
  f.integer(
      "window", window,
      {.doc = "Earlier updates whose gradient norms (before clipping) count; they are part of "
              "a checkpoint",
       .min = 1,
       .max = 10000});
  f.integer("min_history", min_history,
            {.doc = "Number of norms before clipping begins", .min = 1, .max = 10000});
  f.number("factor", factor, {.doc = "The limit as a multiple of the percentile", .above = 0});
}

void ClipPercentile::validate(Diagnostics& diagnostics) const {
  if (min_history > window) {
    diagnostics.add(*this, "min_history", "min_history is greater than the window");
  }
}

void EmaConfig::describe(Fields& f) {
  f.number("decay", decay,
           {.doc = "Share of the old average in the new one", .min = 0, .below = 1});
  f.integer("start_step", start_step,
            {.doc = "Updates before averaging begins; until then the average is the weights",
             .min = 0,
             .known_as = {"start", "update_after_step"}});
  f.boolean(
      "warmup", warmup,
      {.doc = "Begin with a lower decay: that of the k-th average is at most (1 + k) / (10 + k)",
       .known_as = {"use_ema_warmup"}});
}

void UpdateConfig::describe(Fields& f) {
  f.choice("gradient", gradient,
           {{"reverse", GradientMode::reverse, "backpropagation"},
            {"forward", GradientMode::forward,
             "an unbiased estimate from derivatives along random directions, computed with the "
             "forward; no activations are kept (Baydin et al. 2022)"}},
           {.doc = "How gradients are computed"});
  f.integer(
      "directions", directions,
      {.doc = "Random directions of `gradient: forward`, whose estimates are averaged (absent: "
              "1); each costs about another forward",
       .min = 1,
       .max = 1000});
  f.number("max_grad_norm", max_grad_norm,
           {.doc = "Clip the gradient to this Euclidean norm; absent: no clipping",
            .above = 0,
            .known_as = {"max_norm", "clip", "gradient_clipping", "clip_grad_norm"}});
  f.choice("clip_norm", clip_norm,
           {{"current", ClipNorm::current, "the norm of the step's gradients"},
            {"previous", ClipNorm::previous,
             "that of the step before (none in the first step), with optimizer_in_backward"}},
           {.doc = "The norm that is compared with max_grad_norm"});
  f.number("max_grad_value", max_grad_value,
           {.doc = "Clip each element of the gradient to ± this value; absent: no clipping",
            .above = 0,
            .known_as = {"clip_value", "clip_grad_value", "max_value"}});
  f.section("clip_percentile", clip_percentile,
            {.doc = "Clip the gradient to a percentile of the norms of earlier updates",
             .known_as = {"autoclip"}});
  f.boolean(
      "optimizer_in_backward", optimizer_in_backward,
      {.doc = "Update each parameter as soon as the backward has its gradient, so that few "
              "gradients are in memory at a time. A step with a loss that is not finite changes "
              "nothing; one whose loss is finite but a gradient is not has changed the parameters "
              "before it",
       .known_as = {"optimizer_in_bwd", "fused_backward", "lomo"}});
  f.texts("freeze", freeze,
          {.doc = "Patterns of parameters that are not trained, such as [\"*\", \"!head.*\"]: they "
                  "have no gradients and no optimizer state. Batch norm still normalises by the "
                  "batch and updates its running statistics, as in PyTorch with requires_grad off",
           .scalar_ok = true,
           .known_as = {"frozen", "freeze_layers"}});
  f.section("ema", ema,
            {.doc = "Keep a moving average of weights and running statistics: evaluation uses it, "
                    "checkpoints hold both (ema.safetensors)",
             .known_as = {"ema_decay", "exponential_moving_average", "swa"}});
}

void UpdateConfig::validate(Diagnostics& diagnostics) const {
  if (directions && gradient == GradientMode::reverse) {
    diagnostics.add(*this, "directions", "is for gradient: forward");
  }
  if (optimizer_in_backward && gradient == GradientMode::forward) {
    diagnostics.add(*this, "gradient", "forward has no backward for optimizer_in_backward");
  }
  if (max_grad_value && (max_grad_norm || clip_percentile)) {
    diagnostics.add(*this, "max_grad_value",
                    "the gradient is clipped by its norm already; keep one of the two");
  }
  if (optimizer_in_backward && clip_percentile) {
    diagnostics.add(*this, "clip_percentile",
                    "needs the norm of all gradients before the first update, which "
                    "optimizer_in_backward does not have");
  }
  if (optimizer_in_backward && max_grad_norm && clip_norm == ClipNorm::current) {
    diagnostics.add(*this, "max_grad_norm",
                    "with optimizer_in_backward the norm of all gradients is not known before the "
                    "first update; set clip_norm: previous");
  }
  if (clip_norm == ClipNorm::previous && !(optimizer_in_backward && max_grad_norm)) {
    diagnostics.add(*this, "clip_norm", "previous is for max_grad_norm with optimizer_in_backward");
  }
}

}  // namespace dltrain
