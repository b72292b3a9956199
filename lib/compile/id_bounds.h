// Finds the model's integer inputs that index an embedding, and the number of its rows. The data is
// checked against these bounds before the first step, since kernels do not check ids.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace dltrain {

struct IdBound {
  size_t slot;        // index into the slots that the host fills
  int64_t bound;      // ids are 0 to bound − 1; the minimum if several layers read the input
  std::string layer;  // layer of the embedding
};

// Traces the ids of every embedding back to `slots` through ops that only move elements. Throws
// Error(usage) with the layer as its place where ids are computed in another way.
std::vector<IdBound> id_bounds(const Graph& graph, const std::vector<ValueId>& slots);

}  // namespace dltrain
