// Warnings about data that is valid but unusual, or does not suit the model.
#pragma once

#include <string>
#include <vector>

#include "run/session.h"

namespace dltrain {

// Returns warnings as sentences: inputs in other units or with the channels first, splits with
// different classes or the same samples, labels without samples or outputs.
std::vector<std::string> data_advice(const Session& session);

// Returns how large the inputs are and what makes them small; empty if none is 10 or more.
std::string large_inputs(const Session& session);

}  // namespace dltrain
