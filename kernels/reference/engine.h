// The reference engine: naive, readable kernels for every op, in f32 and f64 storage with all
// arithmetic in double. Fast kernels and gradient rules are tested against it, and `dltrain check`
// runs its float64 gradient check on it. Its formulas follow the ops' definitions and do not use
// kernels/shared, so that tests find errors there.
#pragma once

#include "device/engine.h"

namespace dltrain {

// One device, index 0, in ordinary memory. Lives as long as the program.
const Engine& reference_engine();

}  // namespace dltrain
