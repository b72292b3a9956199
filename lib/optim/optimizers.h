// The rows of each file of optimizers for the table in optim/optimizer.cpp.
#pragma once

#include "optim/optimizer.h"

namespace dltrain {

using OptimizerRows = std::vector<KindRow<Optimizer>>();
OptimizerRows element_optimizer_rows;
OptimizerRows trust_ratio_rows;
OptimizerRows adafactor_rows;

}  // namespace dltrain
