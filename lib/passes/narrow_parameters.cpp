#include "passes/narrow_parameters.h"

#include <set>

#include "base/philox.h"
#include "passes/verify_pass.h"

namespace dltrain {
namespace {

// Returns for each copy that replaces its parameter this parameter.
Replacements find_replaced(const Graph& graph, const std::set<std::string>* only) {
  std::set<ValueId> read;
  for (const Node& node : graph.nodes) {
    const UpdateKind kind = node.op->update;
    if (kind == UpdateKind::optimizer || kind == UpdateKind::rounding) continue;
    for (ValueId id : node.inputs) {
      if (id != kNoValue) read.insert(graph.storage(id));
    }
  }
  Replacements out;
  for (ValueId copy : graph.with_role(Role::low_precision)) {
    const GraphValue& value = graph.value(copy);
    if (only != nullptr && !only->contains(graph.value(value.of).name)) continue;
    if (value.spec.dtype == DType::bf16 && !read.contains(value.of)) out[copy] = value.of;
  }
  return out;
}

}  // namespace

Graph narrow_parameters(Graph graph, const std::set<std::string>* only) {
  const Replacements by = find_replaced(graph, only);
  std::set<ValueId> narrow;
  for (const auto& [copy, parameter] : by) {
    graph.value(parameter).spec.dtype = graph.value(copy).spec.dtype;
    graph.value(copy) = {.spec = graph.value(copy).spec};
    narrow.insert(parameter);
  }
  std::vector<bool> gone(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    Node& node = graph.nodes[i];
    gone[i] = node.op->update == UpdateKind::rounding && by.contains(node.inputs[2]);
    replace_inputs(node, by);
    if (node.op->update != UpdateKind::optimizer || !narrow.contains(node.inputs[1])) continue;
    const GraphValue& parameter = graph.value(node.inputs[1]);
    const uint64_t stream = random_stream("rounding." + parameter.name);
    node.attributes.set("rounding", std::vector<int64_t>{static_cast<int64_t>(stream)});
    graph.value(node.outputs[0]).spec.dtype = parameter.spec.dtype;
  }
  for (GraphValue& view : graph.values) {
    if (!by.contains(view.storage_of)) continue;
    view.storage_of = by.at(view.storage_of);
    view.role = Role::parameter;
  }
  graph.remove_nodes(gone);
  verify_pass(graph);
  return graph;
}

}  // namespace dltrain
