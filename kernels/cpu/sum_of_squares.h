// Sums of squares in double over contiguous memory, in an order that depends only on the length.
#pragma once

#include "shared/update_rules.h"

namespace dltrain {

double sum_of_squares(const float* x, int64_t count);
// The same for the gradient as scaled for update ops.
double sum_of_squares(const GradientView<float>& view, const float* gradient, int64_t count);

}  // namespace dltrain
