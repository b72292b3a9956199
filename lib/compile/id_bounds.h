// Which of the model's integer inputs name rows of an embedding, and of how many: what the data
// must be checked against before the first step, since kernels do not look.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace dltrain {

struct IdBound {
  size_t slot;        // index into the slots that the host fills
  int64_t bound;      // ids are 0 to bound − 1; the least one where several layers read the input
  std::string layer;  // that asks for it
};

// Follows the ids of every embedding through ops that only move elements, back to `slots`. Throws
// Error(usage) with the layer as its place where ids are computed in another way.
std::vector<IdBound> id_bounds(const Graph& graph, const std::vector<ValueId>& slots);

}  // namespace dltrain
