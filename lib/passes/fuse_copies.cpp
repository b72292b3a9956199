#include "passes/fuse_copies.h"

#include "passes/verify_pass.h"

namespace dltrain {

Graph fuse_copies(Graph graph) {
  std::vector<bool> gone(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& rounding = graph.nodes[i];
    if (rounding.op->update != UpdateKind::rounding) continue;
    const int producer = graph.value(rounding.inputs[1]).producer;
    if (producer < 0) continue;
    Node& update = graph.nodes[static_cast<size_t>(producer)];
    if (update.op->update != UpdateKind::optimizer || !update.op->independent_elements ||
        update.attributes.boolean("copies")) {
      continue;
    }
    update.inputs.push_back(rounding.inputs[2]);
    update.outputs.push_back(rounding.outputs[0]);
    update.attributes.set("copies", true);
    gone[i] = true;
  }
  graph.remove_nodes(gone);
  verify_pass(graph);
  return graph;
}

}  // namespace dltrain
