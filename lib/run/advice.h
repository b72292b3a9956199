// Warnings before and at the first step about settings that are valid but unusual, and about data
// (run/data_advice.h).
#pragma once

#include <string>
#include <vector>

#include "run/session.h"

namespace dltrain {

// Returns warnings as sentences: keys without effect or with too much of it, unusual lengths and
// shapes, a tokenizer that does not belong to the initial weights, splits with different classes.
std::vector<std::string> advice(const Session& session);

// Returns the kernel variants of a step on a GPU, with their numbers of calls, for ops that have
// several variants; empty on the CPU.
std::string kernels_of_step(const Session& session);

// Returns a warning if the loss of the first step is far above that of a guess and the inputs are
// large numbers; else an empty text.
std::string first_loss_advice(const Session& session, double loss);

}  // namespace dltrain
