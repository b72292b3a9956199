// The reference engine: naive, readable kernels for every op, in f32 and f64 storage with all
// arithmetic in double. It is the oracle that fast kernels and gradient rules are compared against,
// and what `dltrain check` runs its float64 gradient check on. Its formulas are written from the
// ops' definitions alone and share nothing with kernels/shared, so that a mistake there shows.
#pragma once

#include "device/engine.h"

namespace dltrain {

// One device, index 0, in ordinary memory. Lives as long as the program.
const Engine& reference_engine();

}  // namespace dltrain
