#include "graph/graph.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <fmt/ranges.h>

#include "base/error.h"
#include "graph/slots.h"
#include "ops/kernel.h"

namespace dltrain {

std::string_view phase_name(Phase phase) {
  switch (phase) {
    case Phase::forward:
      return "forward";
    case Phase::backward:
      return "backward";
    case Phase::weights:
      return "weight gradients";
    case Phase::update:
      return "update";
  }
  return "?";
}

ValueId Graph::add(GraphValue value) {
  values.push_back(std::move(value));
  return static_cast<ValueId>(values.size() - 1);
}

const Node* Graph::producer_of(ValueId id) const {
  const int producer = id == kNoValue ? -1 : value(id).producer;
  return producer < 0 ? nullptr : &nodes[static_cast<size_t>(producer)];
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

bool Graph::continues_sum(ValueId id) const {
  const ValueId before = value(id).storage_of;
  if (before == kNoValue) return false;
  const Node* node = producer_of(id);
  return node != nullptr && node->outputs.size() == 1 &&
         std::ranges::find(node->inputs, before) == node->inputs.end();
}

std::vector<ValueId> Graph::whole_sums() const {
  std::vector<ValueId> out(values.size());
  std::iota(out.begin(), out.end(), 0);
  for (const Node& node : nodes) {
    for (ValueId made : node.outputs) {
      if (continues_sum(made)) out[static_cast<size_t>(storage(made))] = made;
    }
  }
  return out;
}

ValueId Graph::newest(ValueId root) const {
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    if (!node->op->has_effect) continue;
    for (ValueId id : node->outputs) {
      if (storage(id) == root) return id;
    }
  }
  return root;
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

std::vector<Graph::GroupOffset> Graph::group_offsets() const {
  std::vector<GroupOffset> out(values.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const FlatGroup::Member& member : groups[g].members) {
      out[static_cast<size_t>(member.value)] = {static_cast<int>(g), member.offset, member.window};
    }
  }
  return out;
}

int64_t Graph::next_slot() const {
  int64_t next = 0;
  for (const Node& node : nodes) next = std::max(next, node.attributes.integer("slot", -1) + 1);
  return next;
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

Cost Graph::cost(const Node& node) const {
  return op_cost(*node.op, input_specs(node), output_specs(node), node.attributes);
}

void Graph::append(Node node) {
  const SpecList in = input_specs(node), specs = node.op->output_specs(in, node.attributes);
  const std::vector<int> from = node.op->output_aliases(in, node.attributes, specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    GraphValue& output = value(node.outputs[i]);
    output.spec = specs[i];
    if (from[i] >= 0) output.storage_of = node.inputs[static_cast<size_t>(from[i])];
  }
  nodes.push_back(std::move(node));
}

void Graph::remove_nodes(const std::vector<bool>& gone) {
  std::vector<Node> kept;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!gone[i]) kept.push_back(std::move(nodes[i]));
  }
  nodes = std::move(kept);
  update_producers();
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

std::vector<std::vector<int>> Graph::readers() const {
  std::vector<std::vector<int>> out(values.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (ValueId id : nodes[i].inputs) {
      if (id != kNoValue) out[static_cast<size_t>(id)].push_back(static_cast<int>(i));
    }
  }
  return out;
}

void Graph::update_producers() {
  for (GraphValue& v : values) v.producer = -1;
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (ValueId id : nodes[i].outputs) value(id).producer = static_cast<int>(i);
  }
}

ValueId replaced(const Replacements& by, ValueId id) {
  const auto found = by.find(id);
  return found == by.end() ? id : found->second;
}

void replace_inputs(Node& node, const Replacements& by) {
  for (ValueId& id : node.inputs) id = replaced(by, id);
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
    if (node.once_per_step) out += "  @last";
    if (!node.layer.empty()) out += fmt::format("  # {}", node.layer);
    out += '\n';
  }
  return out;
}

namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& graph)
      : graph_(graph), version_(graph.values.size(), 0), current_(graph.values.size(), 0) {}

  void run() {
    check_names();
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      at_ = i;
      expect(i == 0 || node.phase >= graph_.nodes[i - 1].phase, "phases out of order");
      for (ValueId id : node.inputs) {
        if (id != kNoValue) check_read(node, id, i);
      }
      const SpecList expected = node.op->output_specs(graph_.input_specs(node), node.attributes);
      for (ValueId id : node.outputs) check_exists(id);
      expect(expected == graph_.output_specs(node), "outputs differ from the shape rule");
      check_writes(node, i);
    }
  }

 private:
  void check_names() const {
    std::set<std::string_view> names;
    for (const GraphValue& value : graph_.values) {
      if (value.storage_of != kNoValue) continue;
      check_internal(!value.name.empty() || !rules_of(value.role).persistent,
                     "state without a name");
      if (value.name.empty()) continue;
      check_internal(names.insert(value.name).second, "two values are named {}", value.name);
    }
  }

  // `what` may name the value.
  void expect(bool holds, const char* what, ValueId id = kNoValue) const {
    if (holds) return;
    const Node& node = graph_.nodes[at_];
    check_internal(false, "node {} {} ({}): {}", at_, node.op->name, node.layer,
                   fmt::format(fmt::runtime(what), id == kNoValue ? "" : show(graph_, id)));
  }

  void check_exists(ValueId id) const {
    check_internal(id >= 0 && id < static_cast<ValueId>(graph_.values.size()),
                   "node {} {}: no value {}", at_, graph_.nodes[at_].op->name, id);
  }

  void check_read(const Node& node, ValueId id, size_t index) const {
    check_exists(id);
    const GraphValue& value = graph_.value(id);
    expect(value.producer < static_cast<int>(index), "reads {} too early", id);
    const Node* producer = graph_.producer_of(id);
    const bool produced = producer != nullptr
                              ? std::ranges::find(producer->outputs, id) != producer->outputs.end()
                              : value.role != Role::activation;
    expect(produced, "reads {}, which no node produces", id);
    const auto root = static_cast<size_t>(graph_.storage(id));
    expect(version_[static_cast<size_t>(id)] == current_[root], "reads {} after it was overwritten",
           id);
    // One among several results is whole at once (passes/remove_copies.h).
    const bool whole = producer != nullptr && producer->outputs.size() > 1;
    expect(!rules_of(value.role).accumulates || whole || node.phase == Phase::update ||
               node.once_per_step || node.op->combines_micro_steps,
           "reads the sum {} before it is complete", id);
  }

  void check_writes(const Node& node, size_t index) {
    const std::vector<int> aliases =
        node.op->output_aliases(graph_.input_specs(node), node.attributes, node.outputs.size());
    std::set<ValueId> written;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId id = node.outputs[i];
      const GraphValue& output = graph_.value(id);
      expect(output.producer == static_cast<int>(index), "producer of output {}", id);
      const ValueId source =
          aliases[i] < 0 ? kNoValue : node.inputs[static_cast<size_t>(aliases[i])];
      if (source == kNoValue && graph_.continues_sum(id)) {
        check_continued(id);
        continue;
      }
      expect(output.storage_of == source, "storage of output {}", id);
      if (source == kNoValue) continue;
      const ValueId root = graph_.storage(id);
      int& now = current_[static_cast<size_t>(root)];
      if (node.op->has_effect) {
        expect(written.insert(root).second, "writes {} twice", root);
        ++now;
      }
      version_[static_cast<size_t>(id)] = now;
    }
  }

  // Checks a value that continues a sum: no node may read the sum before this part is added.
  void check_continued(ValueId id) {
    const GraphValue &part = graph_.value(id), &before = graph_.value(part.storage_of);
    const auto root = static_cast<size_t>(graph_.storage(id));
    expect(before.spec == part.spec && before.role == part.role && before.producer >= 0 &&
               before.producer < part.producer &&
               version_[static_cast<size_t>(part.storage_of)] == current_[root],
           "cannot continue the sum {}", part.storage_of);
    version_[static_cast<size_t>(id)] = ++current_[root];
  }

  const Graph& graph_;
  size_t at_ = 0;             // the node being checked
  std::vector<int> version_;  // per value: how often its memory had been written in place
  std::vector<int> current_;  // per storage: how often it has been written so far
};

}  // namespace

void verify_graph(const Graph& graph) {
  Verifier(graph).run();
  verify_slots(graph);
}

}  // namespace dltrain
