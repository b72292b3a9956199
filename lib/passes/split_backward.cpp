#include "passes/split_backward.h"

#include <algorithm>

#include "comm/mesh.h"
#include "passes/verify_pass.h"

namespace dltrain {

Graph split_backward(Graph graph) {
  std::vector<bool> needed(graph.values.size(), false);
  bool sends = false;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    Node& node = graph.nodes[i];
    if (node.phase != Phase::backward) continue;
    // Messages between stages, and the ends of those of the forward.
    const bool message = node.attributes.text(kOver).starts_with(mesh_axes::kPipeline);
    sends = sends ||
            (message && node.op->message == MessageKind::send && node.op->slot == SlotUse::begins &&
             node.attributes.text(kOver) == mesh_axes::kPipelineBack);
    const bool stays = message || std::ranges::any_of(node.outputs, [&](ValueId id) {
                         return id != kNoValue && needed[static_cast<size_t>(id)];
                       });
    if (!stays) {
      node.phase = Phase::weights;
      continue;
    }
    for (ValueId id : node.inputs) {
      if (id != kNoValue) needed[static_cast<size_t>(id)] = true;
    }
  }
  for (Node& node : graph.nodes) {
    if (!sends && node.phase == Phase::weights) node.phase = Phase::backward;
  }
  std::ranges::stable_sort(graph.nodes, {}, &Node::phase);
  graph.update_producers();
  verify_pass(graph);
  return graph;
}

}  // namespace dltrain
