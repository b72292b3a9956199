// Losses that a batch has whatever the model is: that of an answer without opinion, and the lowest
// that any outputs can reach. Label smoothing, mixed samples and soft targets keep the second above
// zero.
//
// Losses are those of evaluation (of a distillation the hard loss), in float64 on the reference
// engine, divided as the batch says.
#pragma once

#include "train/checks_support.h"

namespace dltrain {

struct LossBounds {
  // The lowest is sought among outputs that say the targets, as firmly as is best; so it is an
  // upper bound, exact for losses of one sort of targets, and near where class weights meet
  // smoothing.
  double lowest = 0;
  double uninformed = 0;  // all logits equal, or the best constant numbers
  // Of the best answer that is the same for every sample and place: how often each class occurs.
  double constant = 0;
  // Of outputs a small step from the uninformed ones towards the targets: less than theirs, unless
  // the loss has the wrong sign.
  double step_nearer = 0;
};

// `batch` is one of `session`. `lowest` false: it is not computed.
LossBounds loss_bounds(const Engine& reference, const Session& session, const OneBatch& batch,
                       bool lowest = true);

}  // namespace dltrain
