// Runs the update of each parameter as soon as its gradient is complete and nothing reads the
// parameter any more (training.optimizer_in_backward), so that few gradients are in memory at a
// time. As in torchtune's optimizer_in_bwd and LOMO (Lv et al. 2023).
//
//   backward … dW₂ … dW₁ …; gradient_norm(dW₁, dW₂); update W₁; update W₂
//   →  backward … dW₂; running_norm; update W₂ … dW₁; running_norm; update W₁
//
// The norm of all gradients is not known before the first update, so clipping uses the norm of the
// step before (ops/update_state.cpp), and a step in which a later gradient is not finite has
// updated the parameters before it. A loss that is not finite makes all gradients so, and thus
// updates nothing.
#pragma once

#include "graph/graph.h"

namespace dltrain {

// For one rank and one micro-step, after all passes but pack_updates. Requires one node for each
// update of a parameter (no UpdateKind::sums). `clips`: keep the norm for the next step.
Graph optimizer_in_backward(Graph graph, bool clips);

}  // namespace dltrain
