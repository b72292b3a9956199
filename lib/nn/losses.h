// The rows of each file of losses for the table in nn/loss.cpp.
#pragma once

#include "nn/loss.h"

namespace dltrain {

using LossRows = std::vector<KindRow<Loss>>();
LossRows class_loss_rows;
LossRows elementwise_loss_rows;
LossRows distillation_rows;

}  // namespace dltrain
