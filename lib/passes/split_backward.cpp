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
    // Messages between stages, apart from the ends of those with gradients, which would let the
    // device wait before it computes weights. Also those of a ring (lower_context.cpp), whose
    // receivers wait in the backward.
    const std::string over = node.attributes.text(kOver);
    const bool ends = node.op->slot == SlotUse::ends, sent = node.op->message == MessageKind::send;
    const bool gradient = over == mesh_axes::kPipelineBack && sent;
    const bool message = (sent || over.starts_with(mesh_axes::kPipeline)) && !(gradient && ends);
    sends = sends || gradient;
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
