#include "passes/fuse.h"

#include <algorithm>
#include <map>
#include <set>

#include "ops/elementwise.h"
#include "ops/fused.h"
#include "passes/fuse_norms.h"
#include "passes/recompute.h"
#include "passes/verify_pass.h"

namespace dltrain {
namespace {

constexpr size_t kMaxInputs = 16, kMaxSteps = 16;

bool may_absorb_activation(const Graph& graph, const Node& node) {
  return node.op->takes_activation && node.attributes.text("activation").empty() &&
         graph.value(node.outputs[0]).role == Role::activation;
}

void fuse_epilogues(Graph& graph) {
  const std::vector<int> uses = graph.count_uses();
  std::vector<bool> gone(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& activation = graph.nodes[i];
    if (!activation.op->ends_product) continue;
    const GraphValue& x = graph.value(activation.inputs[0]);
    const GraphValue& y = graph.value(activation.outputs[0]);
    if (x.producer < 0 || uses[static_cast<size_t>(activation.inputs[0])] != 1) continue;
    Node& producer = graph.nodes[static_cast<size_t>(x.producer)];
    if (!may_absorb_activation(graph, producer) ||
        (y.role != Role::activation && y.role != Role::output) ||
        producer.phase != activation.phase || x.spec != y.spec) {
      continue;
    }
    producer.attributes.set("activation", std::string(activation.op->name));
    producer.outputs = activation.outputs;
    gone[i] = true;
  }
  graph.remove_nodes(gone);
}

class Groups {
 public:
  explicit Groups(Graph& graph)
      : graph_(graph),
        readers_(graph.readers()),
        writes_(graph.values.size()),
        taken_(graph.nodes.size(), false) {
    for (size_t i = 0; i < graph.nodes.size(); ++i) note_writes(i);
  }

  // Tries every node that is not yet in a group as the end of a new group.
  void run() {
    std::vector<bool> gone(graph_.nodes.size(), false);
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      if (taken_[i] || !may_join(graph_.nodes[i])) continue;
      const Members members = grow(static_cast<int>(i));
      if (members.size() < 2 || only_casts(members)) continue;
      Node fused = make_fused(members);
      for (int member : members) {
        taken_[static_cast<size_t>(member)] = true;
        gone[static_cast<size_t>(member)] = true;
      }
      gone[i] = false;
      graph_.nodes[i] = std::move(fused);
    }
    graph_.remove_nodes(gone);
  }

 private:
  using Members = std::set<int>;  // indices of nodes, in order of execution

  void note_writes(size_t index) {
    const Node& node = graph_.nodes[index];
    for (ValueId id : node.outputs) {
      if (!node.op->has_effect || graph_.value(id).storage_of == kNoValue) continue;
      writes_[static_cast<size_t>(graph_.storage(id))].push_back(static_cast<int>(index));
    }
  }

  static bool is_cast(const Node& node) { return node.op->same_elements == SameElements::cast; }
  static bool is_f32_or_lower(const TensorSpec& spec) {
    return spec.dtype == DType::f32 || is_low_precision(spec.dtype);
  }
  bool only_casts(const Members& members) const {
    return std::ranges::all_of(
        members, [&](int i) { return is_cast(graph_.nodes[static_cast<size_t>(i)]); });
  }

  bool may_join(const Node& node) const {
    const bool arithmetic = node.op->elementwise && node.op->same_elements == SameElements::no;
    if (!arithmetic && !is_cast(node)) return false;
    const GraphValue& output = graph_.value(node.outputs[0]);
    if (output.role != Role::activation || output.storage_of != kNoValue) return false;
    if (is_cast(node)) {
      return is_f32_or_lower(output.spec) && is_f32_or_lower(graph_.value(node.inputs[0]).spec);
    }
    return std::ranges::all_of(node.inputs, [&](ValueId id) {
      return id != kNoValue && graph_.value(id).spec == output.spec;
    });
  }

  bool alike(const Node& a, const Node& b) const {
    return a.phase == b.phase && a.once_per_step == b.once_per_step &&
           a.attributes.has(kNeverAgain) == b.attributes.has(kNeverAgain) &&
           graph_.value(a.outputs[0]).spec.shape == graph_.value(b.outputs[0]).spec.shape;
  }

  // Moving node `from` to the place of node `to` must not carry a read past a write.
  bool may_move(int from, int to) const {
    const Node& node = graph_.nodes[static_cast<size_t>(from)];
    return std::ranges::none_of(node.inputs, [&](ValueId id) {
      return std::ranges::any_of(writes_[static_cast<size_t>(graph_.storage(id))],
                                 [&](int write) { return from < write && write < to; });
    });
  }

  bool read_only_within(const Node& node, const Members& members) const {
    return std::ranges::all_of(readers_[static_cast<size_t>(node.outputs[0])],
                               [&](int reader) { return members.contains(reader); });
  }

  // Returns the distinct operands from outside the group, in order of first use.
  std::vector<ValueId> inputs_of(const Members& members) const {
    std::vector<ValueId> inputs;
    for (int member : members) {
      for (ValueId id : graph_.nodes[static_cast<size_t>(member)].inputs) {
        const bool inside = members.contains(graph_.value(id).producer);
        if (!inside && std::ranges::find(inputs, id) == inputs.end()) {
          inputs.push_back(id);
        }
      }
    }
    return inputs;
  }

  // Producers join from the latest to the earliest, so all readers of a candidate have been decided
  // before it.
  Members grow(int end) const {
    const Node& last = graph_.nodes[static_cast<size_t>(end)];
    Members members{end};
    int block = last.block;  // of the group: nodes without a block can join any
    std::set<int, std::greater<>> candidates;
    const auto add_producers = [&](const Node& node) {
      for (ValueId id : node.inputs) {
        if (graph_.value(id).producer >= 0) candidates.insert(graph_.value(id).producer);
      }
    };
    add_producers(last);
    while (!candidates.empty()) {
      const int index = *candidates.begin();
      candidates.erase(candidates.begin());
      const Node& node = graph_.nodes[static_cast<size_t>(index)];
      if (taken_[static_cast<size_t>(index)] || !may_join(node) || !alike(node, last) ||
          !read_only_within(node, members) || !may_move(index, end)) {
        continue;
      }
      if (block >= 0 && node.block >= 0 && node.block != block) continue;
      members.insert(index);
      if (inputs_of(members).size() > kMaxInputs || members.size() > kMaxSteps) {
        members.erase(index);
        continue;
      }
      block = std::max(block, node.block);
      add_producers(node);
    }
    return members;
  }

  Node make_fused(const Members& members) const {
    const Node& last = graph_.nodes[static_cast<size_t>(*members.rbegin())];
    const std::vector<ValueId> operands = inputs_of(members);
    Node fused = last;
    fused.op = find_op("fused_elementwise");
    fused.attributes = {};
    fused.inputs = operands;
    for (int member : members) {
      fused.block = std::max(fused.block, graph_.nodes[static_cast<size_t>(member)].block);
    }
    // The number of each value among the operands; a cast has that of its input.
    std::map<ValueId, int> number;
    for (ValueId id : operands) number.emplace(id, static_cast<int>(number.size()));
    std::vector<FusedStep> steps;
    for (int member : members) {
      const Node& node = graph_.nodes[static_cast<size_t>(member)];
      if (is_cast(node)) {
        number[node.outputs[0]] = number.at(node.inputs[0]);
        continue;
      }
      FusedStep step{.op = std::string(node.op->name), .operands = {}};
      for (ValueId id : node.inputs) step.operands.push_back(number.at(id));
      const ElementwiseNumbers numbers = elementwise_numbers(step.op, node.attributes);
      step.p = numbers.p;
      step.q = numbers.q;
      number[node.outputs[0]] = static_cast<int>(operands.size() + steps.size());
      steps.push_back(std::move(step));
    }
    if (last.attributes.has(kNeverAgain)) fused.attributes.set(kNeverAgain, true);
    fused.attributes.set("program", print_fused_program(steps));
    if (!fused_dtype(graph_.input_specs(fused), graph_.output_specs(fused))) {
      const DType dtype = graph_.value(last.outputs[0]).spec.dtype;
      fused.attributes.set("output_dtype", std::string(dtype_name(dtype)));
    }
    return fused;
  }

  Graph& graph_;
  std::vector<std::vector<int>> readers_;  // per value: the nodes that read it
  std::vector<std::vector<int>> writes_;   // per storage: the nodes that write it in place
  std::vector<bool> taken_;                // per node
};

}  // namespace

Graph fuse(Graph graph, const FuseOptions& options) {
  if (options.recompute_gates) recompute_gates(graph);
  fuse_epilogues(graph);
  if (options.join_gelu) join_gelu(graph);
  fuse_norms(graph);
  if (options.join_norms) join_norms(graph, options.across_blocks);
  Groups(graph).run();
  verify_pass(graph);
  return graph;
}

}  // namespace dltrain
