// A loss's own ignored label (ignore_index) as −100, which everything else knows.
#pragma once

#include <memory>

#include "data/dataset.h"

namespace dltrain {

// The dataset with kIgnoredLabel for every i32 target that is `label`. Looks at all targets once.
std::shared_ptr<const Dataset> ignore_label(std::shared_ptr<const Dataset> whole, int32_t label);

// How often each label below label_bound() occurs. Throws Error(data) for labels beyond 2²⁴.
std::vector<int64_t> count_labels(const Dataset& dataset);

// Labels 0 and 1 as numbers, f32, for losses of no and yes; kIgnoredLabel becomes NaN. Throws
// Error(data) for data with other labels.
std::shared_ptr<const Dataset> labels_as_answers(std::shared_ptr<const Dataset> whole);

}  // namespace dltrain
