// Conversions of labels for losses.
#pragma once

#include <memory>

#include "data/dataset.h"

namespace dltrain {

// Replaces the ignored label of a loss (ignore_index) by kIgnoredLabel. Reads all targets once.
std::shared_ptr<const Dataset> ignore_label(std::shared_ptr<const Dataset> whole, int32_t label);

// Counts each label below label_bound(). Throws Error(data) for labels above 2²⁴.
std::vector<int64_t> count_labels(const Dataset& dataset);

// Converts the labels 0 and 1 to f32, for binary losses; kIgnoredLabel becomes NaN. Throws
// Error(data) for data with other labels.
std::shared_ptr<const Dataset> labels_as_targets(std::shared_ptr<const Dataset> whole);

}  // namespace dltrain
