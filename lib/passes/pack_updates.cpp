#include "passes/pack_updates.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "passes/verify_pass.h"

namespace dltrain {
namespace {

bool can_be_packed(const Node& node) {
  return node.op->update > UpdateKind::norm && !node.attributes.has("count");
}

// Returns a text that is equal for nodes that one call can compute.
std::string call_of(const Graph& graph, const Node& node) {
  Attributes shared = node.attributes;
  for (const char* of_tensor : {"lr_scale", "weight_decay", "copies"}) shared.erase(of_tensor);
  for (const char* list : {"rounding", "range"}) {
    if (shared.has(list)) shared.set(list, true);
  }
  return fmt::format("{} {} {} {} {}", node.op->name, to_string(shared), node.inputs[0],
                     dtype_name(graph.value(node.inputs[1]).spec.dtype),
                     dtype_name(graph.value(node.inputs[2]).spec.dtype));
}

// Sets the attributes of each tensor. Tensors of equal settings share a group.
void set_attributes(Attributes& to, const std::vector<const Node*>& nodes) {
  std::vector<int64_t> group, rounding, ranges;
  std::vector<double> lr_scale, weight_decay;
  for (const Node* node : nodes) {
    const double lr = node->attributes.numbers("lr_scale", {1})[0];
    const double decay = node->attributes.numbers("weight_decay", {0})[0];
    size_t g = 0;
    while (g < lr_scale.size() && (lr_scale[g] != lr || weight_decay[g] != decay)) ++g;
    if (g == lr_scale.size()) {
      lr_scale.push_back(lr);
      weight_decay.push_back(decay);
    }
    group.push_back(static_cast<int64_t>(g));
    for (int64_t stream : node->attributes.integers("rounding")) rounding.push_back(stream);
    for (int64_t number : node->attributes.integers("range")) ranges.push_back(number);
    if (node->attributes.boolean("copies")) to.set("copies", true);
  }
  to.set("count", static_cast<int64_t>(nodes.size()));
  if (lr_scale.size() > 1) to.set("group", group);
  if (to.has("lr_scale")) to.set("lr_scale", lr_scale);
  if (to.has("weight_decay")) to.set("weight_decay", weight_decay);
  if (!rounding.empty()) to.set("rounding", rounding);
  if (!ranges.empty()) to.set("range", ranges);
}

Node packed(const Graph& graph, const std::vector<const Node*>& nodes) {
  Node out = *nodes.front();
  set_attributes(out.attributes, nodes);
  size_t roles = 0;
  for (const Node* node : nodes) roles = std::max(roles, node->inputs.size());
  out.inputs.resize(1);
  for (size_t role = 1; role < roles; ++role) {
    for (const Node* node : nodes) {
      out.inputs.push_back(role < node->inputs.size() ? node->inputs[role] : kNoValue);
    }
  }
  // Results in the memory of inputs, role by role, then others.
  std::map<size_t, std::vector<ValueId>> results;
  for (const Node* node : nodes) {
    const std::vector<int> aliases =
        node->op->output_aliases(graph.input_specs(*node), node->attributes, node->outputs.size());
    for (size_t i = 0; i < aliases.size(); ++i) {
      const size_t role = aliases[i] < 0 ? roles : static_cast<size_t>(aliases[i]);
      results[role].push_back(node->outputs[i]);
    }
  }
  out.outputs.clear();
  for (const auto& [role, of] : results)
    out.outputs.insert(out.outputs.end(), of.begin(), of.end());
  return out;
}

}  // namespace

Graph pack_updates(Graph graph) {
  std::map<std::string, std::vector<size_t>> open;  // by call: nodes that will be one
  std::vector<std::vector<size_t>> packs;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (!can_be_packed(node)) continue;
    std::vector<size_t>& pack = open[call_of(graph, node)];
    // The call stands where the first of its nodes does.
    const bool ready = std::ranges::all_of(node.inputs, [&](ValueId id) {
      return id == kNoValue || pack.empty() ||
             graph.value(id).producer < static_cast<int>(pack.front());
    });
    if (!ready) packs.push_back(std::exchange(pack, {}));
    pack.push_back(i);
  }
  for (auto& [call, pack] : open) packs.push_back(std::move(pack));
  std::vector<bool> gone(graph.nodes.size(), false);
  for (const std::vector<size_t>& pack : packs) {
    if (pack.size() < 2) continue;
    std::vector<const Node*> nodes;
    for (size_t i : pack) {
      nodes.push_back(&graph.nodes[i]);
      gone[i] = i != pack.front();
    }
    graph.nodes[pack.front()] = packed(graph, nodes);
  }
  graph.remove_nodes(gone);
  verify_pass(graph);
  return graph;
}

}  // namespace dltrain
