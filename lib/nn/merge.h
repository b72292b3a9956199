// How several values become one.
#pragma once

#include <span>

#include "nn/layer.h"

namespace dltrain {

enum class Merge : uint8_t { add, multiply, concat, mean };

// Throws Error(usage) naming both shapes where they do not fit. add and mean want equal shapes;
// multiply lets later ones broadcast to the first (a gate [n, 1, 1, c] on images).
// concat puts them one behind the other along the last axis.
ValueId merge(LayerContext& context, Merge how, std::span<const ValueId> values);

}  // namespace dltrain
