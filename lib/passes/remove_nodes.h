#pragma once

#include <utility>
#include <vector>

#include "graph/graph.h"

namespace dltrain {

// Removes the nodes that are marked in `gone` (one mark per node); the others keep their order.
inline void remove_nodes(Graph& graph, const std::vector<bool>& gone) {
  std::vector<Node> kept;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!gone[i]) kept.push_back(std::move(graph.nodes[i]));
  }
  graph.nodes = std::move(kept);
  graph.update_producers();
}

}  // namespace dltrain
