// Warnings before and at the first step about settings and data that are valid but unusual.
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

// Returns how large the inputs are and what makes them small; empty if none is 10 or more.
std::string large_inputs(const Session& session);

// Returns a warning if the loss of the first step is far above that of a guess and the inputs are
// large numbers; else an empty text.
std::string first_loss_advice(const Session& session, double loss);

}  // namespace dltrain
