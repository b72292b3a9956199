// Ops around the optimizer's update. Like all writes to state they are skipped in a step that is
// not finite.
//
// clip_percentile(step_state, norms f32 [window]): after gradient_norm. Let n be the smaller of
//   window and the updates before this one. With n ≥ min_history, gradient_factor is multiplied by
//   min(1, factor·q / (grad_norm + 1e-6)), q the percentile (nearest rank: the
//   ⌈percentile/100·n⌉-th smallest) of the norms of the last n updates. gradient_norm has clipped
//   to max_grad_norm: where that is smaller than the norm it stands in the norm's place, so that
//   the smaller limit counts. Then grad_norm takes the oldest place: norms[(updates − 1) mod
//   window]. Norms are those before clipping (Seetharaman et al. 2020, AutoClip). Attributes:
//   percentile, min_history, factor.
// ema_update(step_state, s₁ … sₙ, e₁ … eₙ): e ← e + (1 − d)(s − e), the average of s over updates;
//   with k = updates − start: k ≤ 1: e ← s; else d = decay, with `warmup` at most (1 + k)/(10 + k).
//   s are the values after the update. Attributes: count (n, 1 if absent), decay,
//   start, warmup.
// running_norm(step_state, squares f64 [1], previous f64 [1]): in place of gradient_norm, for
//   updates in the backward (passes/optimizer_in_backward.h). `squares` is the sum over those
//   gradients that the next updates read. The node with the attribute `first` begins StepResults:
//   it counts the update if `squares` is finite, and with `clips` sets gradient_factor from
//   `previous`, the norm of the update before (0: no clipping). Each node adds to grad_norm and
//   clears `finite` if its `squares` are not finite; the last one (`last`) stores the norm in
//   `previous` if the step is finite. `previous` is given with `clips`.
#include "ops/definitions.h"

namespace dltrain {
constinit const OpDef kClipPercentileOp{.name = "clip_percentile",
                                        .doc = "clips to a percentile of recent gradient norms",
                                        .signature = "step norms[W] -> step! norms!",
                                        .has_effect = true};
constinit const OpDef kRunningNormOp{
    .name = "running_norm",
    .doc = "gradient norm, finite flag and clipping factor of updates in the backward",
    .signature = "step squares[1]:f64 previous[1]:f64?@clips -> step! previous!",
    .has_effect = true};
constinit const OpDef kEmaUpdateOp{.name = "ema_update",
                                   .doc = "moving average of parameters and buffers",
                                   .signature = "step | s[*] average[*] -> average!",
                                   .update = UpdateKind::average,
                                   .independent_elements = true,
                                   .has_effect = true};

}  // namespace dltrain
