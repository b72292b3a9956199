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

bool depends_on(const Graph& graph, ValueId value, ValueId source) {
  std::vector<bool> seen(graph.values.size());
  std::vector<ValueId> rest{value};
  while (!rest.empty()) {
    const ValueId id = rest.back();
    rest.pop_back();
    if (id == source) return true;
    if (id == kNoValue || seen[static_cast<size_t>(id)]) continue;
    seen[static_cast<size_t>(id)] = true;
    const int producer = graph.value(id).producer;
    if (producer < 0) continue;
    const Node& node = graph.nodes[static_cast<size_t>(producer)];
    rest.insert(rest.end(), node.inputs.begin(), node.inputs.end());
  }
  return false;
}

}  // namespace dltrain
