#include "passes/dead_code.h"

#include <algorithm>

#include "passes/verify_pass.h"

namespace dltrain {

Graph eliminate_dead_code(Graph graph) {
  std::vector<bool> wanted(graph.values.size(), false);
  std::vector<Node> kept;  // last node first
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    Node& node = graph.nodes[i];
    const bool stays = std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) {
      const GraphValue& value = graph.value(id);
      // A view, such as a reshape of state, writes nothing; a value that continues a sum does.
      const bool view = value.storage_of != kNoValue && !graph.continues_sum(id);
      return wanted[static_cast<size_t>(id)] || value.role == Role::output ||
             (rules_of(value.role).persistent && !view);
    });
    if (!stays && !node.op->has_effect) continue;
    for (ValueId id : node.outputs) {
      if (graph.continues_sum(id)) wanted[static_cast<size_t>(graph.value(id).storage_of)] = true;
    }
    for (ValueId id : node.inputs) {
      if (id != kNoValue) wanted[static_cast<size_t>(id)] = true;
    }
    kept.push_back(std::move(node));
  }
  std::reverse(kept.begin(), kept.end());
  graph.nodes = std::move(kept);
  graph.update_producers();
  verify_pass(graph);
  return graph;
}

}  // namespace dltrain
