// One function an optimizer file: its row of the table in optim/optimizer.cpp.
#pragma once

#include "optim/optimizer.h"

namespace dltrain {

KindRow<Optimizer> sgd_row();
KindRow<Optimizer> adam_row();
KindRow<Optimizer> adamw_row();
KindRow<Optimizer> adagrad_row();
KindRow<Optimizer> rmsprop_row();
KindRow<Optimizer> lion_row();
KindRow<Optimizer> lars_row();
KindRow<Optimizer> lamb_row();
KindRow<Optimizer> adafactor_row();

}  // namespace dltrain
