// Definitions that the kernels of galore_projection and step_view (lib/ops/galore.cpp) share.
#pragma once

#include <cstddef>

#include "base/host_device.h"
#include "ops/attributes.h"
#include "ops/op.h"
#include "ops/step_state.h"

namespace dltrain {

// Returns whether the projection multiplies a gradient of this shape from the left: its shorter
// side is the first one.
inline bool projects_from_left(const Shape& gradient) {
  return gradient[0] < gradient[1];
}

// The long side of a gradient is read in blocks of so many elements.
inline constexpr int64_t kProjectionBlock = 256;
// Random vectors beside those that are kept (Halko et al. 2011, section 4.2: 5 to 10).
inline constexpr int64_t kMoreVectors = 8;
// The state that step_view makes, for host and device code.
DLTRAIN_HD StepState step_view(StepState state, bool unit_rate, bool plain_gradient) {
  if (unit_rate) state.in.learning_rate = 1;
  if (plain_gradient) {
    state.out.gradient_factor = 1;
    state.in.max_grad_value = 0;
  }
  return state;
}

// Steps of subspace iteration.
inline constexpr int kProjectionSteps = 2;

// Returns the bytes that the kernel for engines in host memory allocates while it computes singular
// vectors. They are not in the arena.
size_t projection_scratch_bytes(SpecSpan inputs, const Attributes& attributes);

}  // namespace dltrain
