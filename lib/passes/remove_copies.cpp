#include "passes/remove_copies.h"

#include <algorithm>

#include "passes/verify_pass.h"

namespace dltrain {

Graph remove_copies(Graph graph, bool one_rank) {
  const std::vector<int> uses = graph.count_uses();
  std::vector<bool> gone(graph.nodes.size(), false);
  const auto has_views = [&](ValueId id) {
    return std::ranges::find(graph.values, id, &GraphValue::storage_of) != graph.values.end();
  };
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& copy = graph.nodes[i];
    if (copy.op->same_elements != SameElements::copy) continue;
    const ValueId from = copy.inputs[0], sum = copy.outputs[0];
    const GraphValue &source = graph.value(from), &result = graph.value(sum);
    const bool read = uses[static_cast<size_t>(from)] != 1;  // by others too
    if (source.producer < 0 || source.role != Role::activation || source.storage_of != kNoValue ||
        (read && (!one_rank || has_views(from) || has_views(sum))) ||
        result.storage_of != kNoValue || !rules_of(result.role).accumulates) {
      continue;
    }
    Node& producer = graph.nodes[static_cast<size_t>(source.producer)];
    if (producer.phase != copy.phase || producer.once_per_step != copy.once_per_step ||
        producer.outputs.size() == 1) {
      continue;
    }
    *std::ranges::find(producer.outputs, from) = sum;
    gone[i] = true;
    for (size_t k = 0; read && k < graph.nodes.size(); ++k) {
      std::ranges::replace(graph.nodes[k].inputs, from, sum);
    }
  }
  graph.remove_nodes(gone);
  verify_pass(graph);
  return graph;
}

}  // namespace dltrain
