// A loss's own ignored label (ignore_index) as −100, which everything else knows.
#pragma once

#include <memory>

#include "data/dataset.h"

namespace dltrain {

// The dataset with kIgnoredLabel for every i32 target that is `label`. Looks at all targets once.
std::shared_ptr<const Dataset> ignore_label(std::shared_ptr<const Dataset> whole, int32_t label);

// How often each label below label_bound() occurs. Throws Error(data) for labels beyond 2²⁴.
std::vector<int64_t> count_labels(const Dataset& dataset);

}  // namespace dltrain
