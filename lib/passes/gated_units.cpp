#include <algorithm>

#include "passes/fuse.h"

namespace dltrain {
namespace {

// Element-wise nodes that become part of a group, in which a recomputed operand costs no memory.
bool takes_part_in_groups(const Graph& graph, int index) {
  const Node& node = graph.nodes[static_cast<size_t>(index)];
  return node.op->elementwise && node.op->same_elements == SameElements::no &&
         std::ranges::all_of(node.inputs, [&](ValueId id) {
           return id != kNoValue && graph.value(id).spec == graph.value(node.outputs[0]).spec;
         });
}

}  // namespace

void recompute_gates(Graph& graph) {
  const auto readers = graph.readers();
  const auto in_backward = [&](int index) {
    return graph.nodes[static_cast<size_t>(index)].phase == Phase::backward;
  };
  std::vector<std::pair<int, Node>> added;  // each before the node of this index
  for (const Node& node : graph.nodes) {
    if (node.phase != Phase::forward || !node.op->ends_product) continue;
    const ValueId x = node.inputs[0], y = node.outputs[0];
    std::vector<int> later;
    std::ranges::copy_if(readers[static_cast<size_t>(y)], std::back_inserter(later), in_backward);
    if (later.empty() || graph.value(y).role != Role::activation ||
        !std::ranges::all_of(later, [&](int i) { return takes_part_in_groups(graph, i); }) ||
        !std::ranges::any_of(readers[static_cast<size_t>(x)], in_backward)) {
      continue;
    }
    Node again = node;
    again.phase = Phase::backward;
    again.outputs = {graph.add({.spec = graph.value(y).spec})};
    for (const int reader : later) {
      std::ranges::replace(graph.nodes[static_cast<size_t>(reader)].inputs, y, again.outputs[0]);
    }
    added.emplace_back(*std::ranges::min_element(later), std::move(again));
  }
  std::ranges::stable_sort(added, {}, [](const auto& a) { return a.first; });
  for (auto at = added.rbegin(); at != added.rend(); ++at) {
    graph.nodes.insert(graph.nodes.begin() + at->first, std::move(at->second));
  }
  graph.update_producers();
}

}  // namespace dltrain
