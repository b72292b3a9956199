// model.final_bias_from_data: the bias of the last layer starts where the best constant prediction
// is, so that the first steps need not find it.
#pragma once

#include "train/session.h"

namespace dltrain {

// Logarithms of the class frequencies of the training data (a class that does not occur counts as
// half a sample), the logits of the mean targets for binary_cross_entropy, else the mean targets.
// Reads all training targets once. Throws ConfigError where the model does not end in a bias with
// one value an output, or a sample has several targets for one output.
void set_final_bias(Session& session);

}  // namespace dltrain
