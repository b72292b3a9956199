// One function a loss: its row of the table in nn/loss.cpp.
#pragma once

#include "nn/loss.h"

namespace dltrain {

KindRow<Loss> cross_entropy_row();
KindRow<Loss> kl_divergence_row();
KindRow<Loss> binary_cross_entropy_row();
KindRow<Loss> mse_row();
KindRow<Loss> l1_row();
KindRow<Loss> huber_row();
KindRow<Loss> smooth_l1_row();
KindRow<Loss> distillation_row();

}  // namespace dltrain
