// Losses of a batch that do not depend on the model: that of uninformed outputs, and the lowest
// that any outputs can reach, which label smoothing, mixed samples and soft targets keep above
// zero.
//
// Losses are those of evaluation (for distillation the hard loss), in float64 on the reference
// engine, divided by the divisor of the batch.
#pragma once

#include "checks/checks_support.h"

namespace dltrain {

struct LossBounds {
  // The lowest loss of outputs that predict the targets with the best confidence. It is an upper
  // bound: exact for losses of one kind of targets, and close for class weights with smoothing.
  double lowest = 0;
  double uninformed = 0;  // all logits equal, or the best constant numbers
  // The loss of the best constant outputs: the frequencies of the classes, or the mean targets.
  double constant = 0;
  // The loss of outputs a small step from the uninformed ones towards the targets: it is lower,
  // unless the loss has the wrong sign.
  double step_nearer = 0;
};

// `batch`: of `session`. `lowest` false: the lowest loss is not computed.
LossBounds loss_bounds(const Engine& reference, const Session& session, const OneBatch& batch,
                       bool lowest = true);

}  // namespace dltrain
