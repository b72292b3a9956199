// Sums of squares in double over one piece of memory, in one order that depends on the length only.
#pragma once

#include "shared/update_rules.h"

namespace dltrain {

double sum_of_squares(const float* x, int64_t count);
// Of the gradient as update ops see it.
double sum_of_squares(const GradientView<float>& view, const float* gradient, int64_t count);

}  // namespace dltrain
