// The side that galore_projection (lib/ops/galore.cpp) works on, and its memory.
#pragma once

#include <cstddef>

#include "ops/attributes.h"
#include "ops/op.h"

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
// Steps of subspace iteration.
inline constexpr int kProjectionSteps = 2;

// Returns the bytes that the kernel for engines in host memory allocates while it computes singular
// vectors. They are not in the arena.
size_t projection_scratch_bytes(SpecSpan inputs, const Attributes& attributes);

}  // namespace dltrain
