#include "passes/narrow_parameters.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/philox.h"

namespace dltrain {
namespace {

bool is_update(const Node& node) {
  return node.op->independent_elements;
}
bool rounds_narrow_parameters(const Node& node) {
  return node.op->name == "low_precision_update";
}

// Returns for each replaced master the copy that replaces it.
std::map<ValueId, ValueId> find_copies(const Graph& graph) {
  std::set<ValueId> read;
  for (const Node& node : graph.nodes) {
    if (is_update(node) || rounds_narrow_parameters(node)) continue;
    for (ValueId id : node.inputs) {
      if (id != kNoValue) read.insert(graph.storage(id));
    }
  }
  std::map<ValueId, ValueId> copies;
  for (ValueId copy : graph.with_role(Role::low_precision)) {
    const ValueId master = graph.value(copy).master;
    if (graph.value(copy).spec.dtype == DType::bf16 && !read.contains(master)) {
      copies[master] = copy;
    }
  }
  return copies;
}

std::vector<int64_t> chosen(const std::vector<int64_t>& values, const std::vector<size_t>& which) {
  std::vector<int64_t> out;
  for (size_t i : which) {
    if (!values.empty()) out.push_back(values[i]);
  }
  return out;
}

// Returns an update of the given tensors only.
Node part_of(const Node& update, const std::vector<size_t>& tensors) {
  const auto count = static_cast<size_t>(update.attributes.integer("count"));
  Node out = update;
  out.inputs.assign(1, update.inputs[0]);
  out.outputs.clear();
  for (size_t role = 0; 1 + role * count < update.inputs.size(); ++role) {
    for (size_t t : tensors) out.inputs.push_back(update.inputs[1 + role * count + t]);
  }
  // Outputs are all roles of the inputs except the gradients: parameters, then moments.
  for (size_t role = 0; role * count < update.outputs.size(); ++role) {
    for (size_t t : tensors) out.outputs.push_back(update.outputs[role * count + t]);
  }
  out.attributes.set("count", static_cast<int64_t>(tensors.size()));
  const std::vector<int64_t> group = update.attributes.integers("group");
  if (!group.empty()) out.attributes.set("group", chosen(group, tensors));
  return out;
}

class Narrowing {
 public:
  explicit Narrowing(Graph graph) : graph_(std::move(graph)), copies_(find_copies(graph_)) {}

  Graph run() {
    std::vector<Node> nodes;
    for (Node& node : graph_.nodes) {
      if (is_update(node)) {
        split(node, nodes);
      } else if (rounds_narrow_parameters(node)) {
        drop_copies(std::move(node), nodes);
      } else {
        nodes.push_back(std::move(node));
      }
    }
    graph_.nodes = std::move(nodes);
    for (const auto& [master, copy] : copies_) take_place(master, copy);
    for (GraphValue& view : graph_.values) {
      if (view.storage_of == kNoValue || view.role != Role::low_precision) continue;
      view.role = graph_.value(graph_.storage(view.storage_of)).role;
    }
    graph_.update_producers();
    verify_graph(graph_);
    return std::move(graph_);
  }

 private:
  bool narrow(ValueId id) const { return copies_.contains(graph_.storage(id)); }

  // Splits an update into one of the f32 parameters and one of the narrow ones.
  void split(const Node& update, std::vector<Node>& nodes) {
    const auto count = static_cast<size_t>(update.attributes.integer("count"));
    std::vector<size_t> wide, low;
    for (size_t t = 0; t < count; ++t) (narrow(update.inputs[1 + t]) ? low : wide).push_back(t);
    if (!wide.empty()) nodes.push_back(low.empty() ? update : part_of(update, wide));
    if (low.empty()) return;
    Node node = part_of(update, low);
    std::vector<int64_t> streams;
    for (size_t i = 0; i < low.size(); ++i) {
      ValueId& parameter = node.inputs[1 + i];
      const ValueId copy = copies_.at(graph_.storage(parameter));
      streams.push_back(static_cast<int64_t>(
          random_stream("rounding." + graph_.value(graph_.storage(parameter)).name)));
      GraphValue& written = graph_.value(node.outputs[i]);
      written.spec.dtype = graph_.value(copy).spec.dtype;
      written.storage_of = copy;
      parameter = copy;
    }
    node.attributes.set("rounding", streams);
    nodes.push_back(std::move(node));
  }

  // Removes the replaced copies from the rounding.
  void drop_copies(Node rounding, std::vector<Node>& nodes) const {
    const auto count = static_cast<size_t>(rounding.attributes.integer("count"));
    std::vector<ValueId> parameters, copies, outputs;
    for (size_t i = 0; i < count; ++i) {
      if (narrow_copy(rounding.inputs[1 + count + i])) continue;
      parameters.push_back(rounding.inputs[1 + i]);
      copies.push_back(rounding.inputs[1 + count + i]);
      outputs.push_back(rounding.outputs[i]);
    }
    if (copies.empty()) return;
    rounding.inputs.resize(1);
    rounding.inputs.insert(rounding.inputs.end(), parameters.begin(), parameters.end());
    rounding.inputs.insert(rounding.inputs.end(), copies.begin(), copies.end());
    rounding.outputs = std::move(outputs);
    rounding.attributes.set("count", static_cast<int64_t>(copies.size()));
    nodes.push_back(std::move(rounding));
  }
  bool narrow_copy(ValueId copy) const {
    const ValueId master = graph_.value(graph_.storage(copy)).master;
    return master != kNoValue && copies_.contains(master);
  }

  // Gives the master's name and role to the copy; the master has no memory any more.
  void take_place(ValueId master, ValueId copy) {
    GraphValue& wide = graph_.value(master);
    GraphValue& narrow = graph_.value(copy);
    narrow.name = std::move(wide.name);
    narrow.role = Role::parameter;
    narrow.master = kNoValue;
    wide.name.clear();
    wide.role = Role::activation;
  }

  Graph graph_;
  std::map<ValueId, ValueId> copies_;
};

}  // namespace

Graph narrow_parameters(Graph graph) {
  return Narrowing(std::move(graph)).run();
}

}  // namespace dltrain
