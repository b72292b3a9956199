#include "passes/lower_recurrent.h"

#include <algorithm>

#include "ops/recurrent.h"
#include "passes/verify_pass.h"

namespace dltrain {
namespace {

// Returns a node in the place of `origin`, with new values for the outputs of which `outputs` has
// none.
Node part_of(Graph& graph, const Node& origin, const char* op, Attributes attributes,
             std::vector<ValueId> inputs, const std::vector<ValueId>& outputs = {}) {
  Node node = origin;
  node.op = find_op(op);
  node.attributes = std::move(attributes);
  while (inputs.back() == kNoValue) inputs.pop_back();
  node.inputs = std::move(inputs);
  node.outputs = outputs;
  const SpecList specs = node.op->output_specs(graph.input_specs(node), node.attributes);
  for (size_t i = outputs.size(); i < specs.size(); ++i) {
    node.outputs.push_back(graph.add({.spec = specs[i]}));
  }
  return node;
}

// Appends the parts of a network to `nodes`.
void append_parts(Graph& graph, const Node& network, std::vector<Node>& nodes) {
  const std::vector<ValueId> in = network.inputs;  // x, w_ih, w_hh, b_ih, b_hh, h0, c0
  const Attributes& a = network.attributes;
  nodes.push_back(
      part_of(graph, network, "matmul", {{"transpose_b", true}}, {in[0], in[1], in[3]}));
  nodes.push_back(part_of(
      graph, network, "recurrent", {{"kind", a.text("kind")}, {"reverse", a.boolean("reverse")}},
      {nodes.back().outputs[0], in[2], in[4], in[5], in[6]}, {network.outputs[0]}));
  if (network.outputs.size() == 1) return;
  const ValueId cells = nodes.back().outputs[2];
  const int64_t others = graph.value(cells).spec.shape[1] - 1;
  const bool reverse = a.boolean("reverse");
  const std::vector<int64_t> before{0, reverse ? 0 : others, 0}, after{0, reverse ? others : 0, 0};
  nodes.push_back(part_of(graph, network, "slice", {{"before", before}, {"after", after}}, {cells},
                          {network.outputs[1]}));
}

}  // namespace

Graph lower_recurrent(Graph graph, const KeptBytes& kept, bool training) {
  const auto is_network = [](const Node& node) { return node.op->name == "recurrent_network"; };
  if (std::ranges::none_of(graph.nodes, is_network)) return graph;
  std::vector<Node> nodes;
  for (Node& node : graph.nodes) {
    if (!is_network(node)) {
      nodes.push_back(std::move(node));
      continue;
    }
    const auto bytes =
        kept ? kept(node.attributes, graph.input_specs(node), graph.output_specs(node))
             : std::nullopt;
    if (!bytes) {
      append_parts(graph, node, nodes);
      continue;
    }
    if (training && *bytes > 0) {
      node.attributes.set("kept_bytes", *bytes);
      node.outputs.push_back(graph.add({.spec = {Shape{*bytes}, DType::u8}}));
    }
    nodes.push_back(std::move(node));
  }
  graph.nodes = std::move(nodes);
  graph.update_producers();
  verify_pass(graph);
  return graph;
}

}  // namespace dltrain
