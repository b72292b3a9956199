// Defaults that have changed since a run was begun.
#pragma once

#include <filesystem>

#include "train/experiment.h"

namespace dltrain {

// Gives the keys of `experiment` whose defaults are not what they were, and which the person has
// not set, the values that the run `folder` (or a checkpoint) was begun with: which samples
// eval_fraction holds out, and the order of `type: tensors`. Nothing where there is no run.
void keep_saved_defaults(Experiment& experiment, const std::filesystem::path& folder);

}  // namespace dltrain
