#include "compile/later_tokens.h"

#include <vector>

#include "graph/dependence.h"
#include "ops/attention.h"

namespace dltrain {
namespace {

// Returns true if the node lets tokens depend on later tokens. A node of ring attention may have
// keys before all of its queries.
bool looks_ahead(const Graph& graph, const Node& node) {
  if (node.op->name == "attention") {
    if (node.attributes.boolean("causal")) return false;
    const AttentionSizes a =
        attention_sizes(node.op->name, graph.input_specs(node), node.attributes);
    return a.keys - 1 > a.first_query;
  }
  return node.op->name.starts_with("recurrent") && node.attributes.boolean("reverse");
}

}  // namespace

std::string layer_of_later_tokens(const Graph& graph, ValueId tokens) {
  const std::vector<bool> reached = reachable_from(graph, {&tokens, 1});
  for (const Node& node : graph.nodes) {
    if (node.phase != Phase::forward || !looks_ahead(graph, node)) continue;
    // Separate inputs are queries, then keys; a packed input contains both.
    const bool separate =
        node.op->name == "attention" && graph.value(node.inputs[0]).spec.shape.rank() == 4;
    if (reached[static_cast<size_t>(node.inputs[separate ? 1 : 0])]) return node.layer;
  }
  return {};
}

}  // namespace dltrain
