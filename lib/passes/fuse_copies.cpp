#include "passes/fuse_copies.h"

#include <algorithm>
#include <optional>

namespace dltrain {
namespace {

bool rounds_fuse_copies(const Node& node) {
  return node.op->name == "low_precision_update";
}

bool has_independent_elements(const Node& node) {
  return node.op->independent_elements && !node.attributes.boolean("copies");
}

// A copy, and the index of its parameter in the update.
struct Copy {
  size_t parameter;
  ValueId before, after;
};

// Returns the copies that `rounding` writes, in the order of the update's parameters; nullopt if
// `update` does not write all these parameters.
std::optional<std::vector<Copy>> copies_of(const Node& update, const Node& rounding) {
  const auto parameters = static_cast<size_t>(update.attributes.integer("count"));
  const auto count = static_cast<size_t>(rounding.attributes.integer("count"));
  const auto begin = update.outputs.begin(), end = begin + static_cast<std::ptrdiff_t>(parameters);
  std::vector<Copy> out;
  for (size_t i = 0; i < count; ++i) {
    const auto at = std::find(begin, end, rounding.inputs[1 + i]);
    if (at == end) return {};
    out.push_back(
        {static_cast<size_t>(at - begin), rounding.inputs[1 + count + i], rounding.outputs[i]});
  }
  std::sort(out.begin(), out.end(),
            [](const Copy& a, const Copy& b) { return a.parameter < b.parameter; });
  return out;
}

void merge(Node& update, const std::vector<Copy>& copies) {
  const size_t first = update.inputs.size();
  update.inputs.resize(first + static_cast<size_t>(update.attributes.integer("count")), kNoValue);
  for (const Copy& copy : copies) {
    update.inputs[first + copy.parameter] = copy.before;
    update.outputs.push_back(copy.after);
  }
  update.attributes.set("copies", true);
}

// Returns false if there is nothing to merge.
bool merge_one(Graph& graph) {
  for (size_t l = 0; l < graph.nodes.size(); ++l) {
    if (!rounds_fuse_copies(graph.nodes[l])) continue;
    for (size_t u = 0; u < l; ++u) {
      if (!has_independent_elements(graph.nodes[u])) continue;
      const auto copies = copies_of(graph.nodes[u], graph.nodes[l]);
      if (!copies) continue;
      merge(graph.nodes[u], *copies);
      graph.nodes.erase(graph.nodes.begin() + static_cast<std::ptrdiff_t>(l));
      return true;
    }
  }
  return false;
}

}  // namespace

Graph fuse_copies(Graph graph) {
  bool merged = false;
  while (merge_one(graph)) merged = true;
  if (!merged) return graph;
  graph.update_producers();
  verify_graph(graph);
  return graph;
}

}  // namespace dltrain
