// The reference engine: naive, readable kernels for every op, in f32 and f64 storage with all
// arithmetic in double. Fast kernels and gradient rules are tested against it, and `dltrain check`
// runs its float64 gradient check on it. Its formulas follow the ops' definitions, not those of
// kernels/shared, so that tests find errors there. Exceptions are the element-wise functions,
// gradient_norm_of, the projections of GaLore and the layout of FP8 scales.
#pragma once

#include "device/engine.h"

namespace dltrain {

// One device, index 0, in ordinary memory. Lives as long as the program.
const Engine& reference_engine();

}  // namespace dltrain
