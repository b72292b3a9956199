// What a configuration asks for that this run will not do: keys that have no effect, told before
// the first step.
#pragma once

#include <string>
#include <vector>

#include "train/session.h"

namespace dltrain {

// Whole sentences; empty where nothing was found.
std::vector<std::string> advice(const Session& session);

// What the loss of the first step says of the inputs: one sentence where it is far above that of a
// guess and the numbers of the inputs are large; else empty.
std::string first_loss_advice(const Session& session, double loss);

}  // namespace dltrain
