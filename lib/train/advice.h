// What a configuration asks for that this run will not do: keys that have no effect, told before
// the first step.
#pragma once

#include <string>
#include <vector>

#include "train/session.h"

namespace dltrain {

// Whole sentences; empty where nothing was found.
std::vector<std::string> advice(const Session& session);

}  // namespace dltrain
