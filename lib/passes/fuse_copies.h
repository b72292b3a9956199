// Fuses the rounding of parameters to their low-precision copies into the update, which has the new
// parameters in registers or in the cache, so they need not be read again.
#pragma once

#include "graph/graph.h"

namespace dltrain {

// Merges a low_precision_update into the update op of an optimizer whose elements are independent
// (lib/ops/update.cpp, attribute `copies`), when that op writes all parameters that are rounded.
Graph fuse_copies(Graph graph);

}  // namespace dltrain
