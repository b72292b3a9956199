#include "graph/dependence.h"

#include <algorithm>

namespace dltrain {

std::vector<bool> reachable_from(const Graph& graph, std::span<const ValueId> sources) {
  std::vector<bool> out(graph.values.size());
  for (ValueId source : sources) out[static_cast<size_t>(source)] = true;
  for (const Node& node : graph.nodes) {
    const bool reached = std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
      return id != kNoValue && out[static_cast<size_t>(id)];
    });
    if (!reached) continue;
    for (ValueId id : node.outputs) out[static_cast<size_t>(id)] = true;
  }
  return out;
}

}  // namespace dltrain
