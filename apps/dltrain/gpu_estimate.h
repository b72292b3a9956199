// The estimates of `dltrain plan --gpu`.
#pragma once

#include "compile/traffic.h"
#include "run/session.h"

namespace dltrain {

// The described GPU, with the engine that prepares plans for it. Throws Error(usage) if it does not
// compute in the precision of the experiment.
SelectedDevice described(const Gpu& gpu, const Experiment& experiment);

// Prints the time of a step, the rate of samples or tokens, MFU, whether the memory suffices, and
// the most expensive calls.
void print_gpu_estimate(const Session& session, const MachineRates& rates);
// Prints the same on one line, without the calls; `heading`: above it the names of the columns.
void print_gpu_line(const Session& session, const MachineRates& rates, bool heading);

}  // namespace dltrain
