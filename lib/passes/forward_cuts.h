// Positions of the forward at which recomputation can cut it.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace dltrain {

// A position between two forward nodes at which a single activation is live, or the end. None is
// between nodes that are never recomputed (kNeverAgain).
struct ForwardCut {
  size_t after = 0;  // the node before it
  ValueId value = kNoValue;
  double bytes = 0;  // of the activation
  double kept = 0;   // bytes that the nodes up to here have produced for the backward
};

// Returns the number of forward nodes, which are the first of the graph.
size_t forward_nodes(const Graph& graph);

// Returns for each value whether a later phase reads its memory.
std::vector<bool> read_after_forward(const Graph& graph);

// Returns all cuts, the end last. `kept`: values (by id) that stay in memory anyway and so are not
// counted as live; empty: none.
std::vector<ForwardCut> find_forward_cuts(const Graph& graph, const std::vector<bool>& kept = {});

}  // namespace dltrain
