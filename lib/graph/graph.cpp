#include "graph/graph.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "ops/kernel.h"

namespace dltrain {

std::string_view phase_name(Phase phase) {
  switch (phase) {
    case Phase::forward:
      return "forward";
    case Phase::backward:
      return "backward";
    case Phase::update:
      return "update";
  }
  return "?";
}

ValueId Graph::storage(ValueId id) const {
  while (value(id).storage_of != kNoValue) id = value(id).storage_of;
  return id;
}

ValueId Graph::find(std::string_view name) const {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].name == name) return static_cast<ValueId>(i);
  }
  return kNoValue;
}

std::vector<ValueId> Graph::with_role(Role role) const {
  std::vector<ValueId> out;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].role == role && values[i].storage_of == kNoValue) {
      out.push_back(static_cast<ValueId>(i));
    }
  }
  return out;
}

SpecList Graph::input_specs(const Node& node) const {
  SpecList out;
  for (ValueId id : node.inputs) out.push_back(id == kNoValue ? absent_spec() : value(id).spec);
  return out;
}

SpecList Graph::output_specs(const Node& node) const {
  SpecList out;
  for (ValueId id : node.outputs) out.push_back(value(id).spec);
  return out;
}

std::vector<int> Graph::count_uses() const {
  std::vector<int> uses(values.size(), 0);
  for (const Node& node : nodes) {
    for (ValueId id : node.inputs) {
      if (id != kNoValue) ++uses[static_cast<size_t>(id)];
    }
  }
  return uses;
}

void Graph::update_producers() {
  for (GraphValue& v : values) v.producer = -1;
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (ValueId id : nodes[i].outputs) value(id).producer = static_cast<int>(i);
  }
}

namespace {

std::string show(const Graph& graph, ValueId id) {
  if (id == kNoValue) return "-";
  const GraphValue& value = graph.value(id);
  return value.name.empty() ? fmt::format("%{}", id) : value.name;
}

}  // namespace

std::string print_graph(const Graph& graph) {
  std::string out;
  Phase phase = Phase::forward;
  bool first = true;
  for (const Node& node : graph.nodes) {
    if (first || node.phase != phase) {
      out += fmt::format("{}:\n", phase_name(node.phase));
      phase = node.phase;
      first = false;
    }
    std::vector<std::string> outputs, inputs, specs;
    for (ValueId id : node.outputs) {
      outputs.push_back(show(graph, id));
      specs.push_back(to_string(graph.value(id).spec));
    }
    for (ValueId id : node.inputs) inputs.push_back(show(graph, id));
    out += fmt::format("  {} = {}({})", fmt::join(outputs, ", "), node.op->name,
                       fmt::join(inputs, ", "));
    if (!node.attributes.empty()) out += fmt::format(" {{{}}}", to_string(node.attributes));
    out += fmt::format(" : {}", fmt::join(specs, ", "));
    if (node.once_a_step) out += "  @last";
    if (!node.layer.empty()) out += fmt::format("  # {}", node.layer);
    out += '\n';
  }
  return out;
}

namespace {

void verify_node(const Graph& graph, size_t index, std::vector<bool>& written) {
  const Node& node = graph.nodes[index];
  const auto where = [&] {
    return fmt::format("node {} {} ({})", index, node.op->name, node.layer);
  };
  for (ValueId id : node.inputs) {
    if (id == kNoValue) continue;
    check_internal(id >= 0 && id < static_cast<ValueId>(graph.values.size()), "{}: no value {}",
                   where(), id);
    check_internal(graph.value(id).producer < static_cast<int>(index), "{}: reads %{} too early",
                   where(), id);
    check_internal(!written[static_cast<size_t>(id)], "{}: reads {} after it was overwritten",
                   where(), show(graph, id));
    check_internal(!rules_of(graph.value(id).role).accumulates || node.phase == Phase::update ||
                       node.once_a_step,
                   "{}: reads the sum {} before it is complete", where(), show(graph, id));
  }
  const SpecList expected = node.op->infer(graph.input_specs(node), node.attributes);
  check_internal(expected == graph.output_specs(node), "{}: outputs differ from the shape rule",
                 where());
  std::vector<int> aliases(node.outputs.size(), -1);
  if (node.op->aliases != nullptr) {
    aliases = node.op->aliases(graph.input_specs(node), node.attributes);
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const GraphValue& output = graph.value(node.outputs[i]);
    check_internal(output.producer == static_cast<int>(index), "{}: producer of output {}", where(),
                   i);
    const ValueId source = aliases[i] < 0 ? kNoValue : node.inputs[static_cast<size_t>(aliases[i])];
    check_internal(output.storage_of == source, "{}: storage of output {}", where(), i);
    if (source != kNoValue && node.op->has_effect) written[static_cast<size_t>(source)] = true;
    check_internal(
        !rules_of(output.role).accumulates || source != kNoValue || node.outputs.size() == 1,
        "{}: an accumulating value among several outputs", where());
  }
}

}  // namespace

void verify_graph(const Graph& graph) {
  std::vector<bool> written(graph.values.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    check_internal(i == 0 || graph.nodes[i].phase >= graph.nodes[i - 1].phase,
                   "node {}: phases out of order", i);
    verify_node(graph, i, written);
  }
}

}  // namespace dltrain
