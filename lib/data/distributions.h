// Targets that are distributions over the classes.
#pragma once

#include "data/dataset.h"

namespace dltrain {

// Throws Error(data) naming the first sample whose f32 targets, `classes` for each distribution,
// are no shares that add up to 1 (within what 16-bit formats round). NaN: a target that does not
// count. Reads every target.
void check_distributions(const Dataset& data, int64_t classes);

}  // namespace dltrain
