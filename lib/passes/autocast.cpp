#include "passes/autocast.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "graph/builder.h"
#include "ops/rules.h"
#include "passes/verify_pass.h"

namespace dltrain {
namespace {

class Autocast {
 public:
  Autocast(Graph graph, const PrecisionConfig& precision)
      : nodes_(std::move(graph.nodes)),
        graph_(std::move(graph)),
        builder_(graph_),
        precision_(precision),
        dtype_(precision.low()),
        residual_(precision.low_residual()),
        low_(graph_.values.size(), kNoValue),
        present_(graph_.values.size(), false) {
    graph_.nodes.clear();
    for (size_t i = 0; i < present_.size(); ++i) present_[i] = graph_.values[i].producer < 0;
  }

  Graph run(const std::vector<ValueId>& keep) {
    for (Node& node : nodes_) {
      builder_.set_layer(node.layer);
      builder_.set_phase(node.phase);
      rewrite(std::move(node));
    }
    for (ValueId id : keep) in_f32(id);
    graph_.update_producers();
    return std::move(graph_);
  }

 private:
  size_t at(ValueId id) const { return static_cast<size_t>(id); }
  bool is_f32(ValueId id) const {
    return id != kNoValue && graph_.value(id).spec.dtype == DType::f32;
  }
  // Returns true for a parameter, its average (in evaluation), or a view of either.
  bool is_weight(ValueId id) const {
    const Role role = graph_.value(graph_.storage(id)).role;
    return role == Role::parameter || role == Role::ema;
  }
  // Returns true when all inputs of the op, except parameters, are low.
  bool follows(const std::vector<ValueId>& inputs) const {
    bool any = false;
    for (ValueId id : inputs) {
      if (!is_f32(id) || is_weight(id)) continue;
      if (!native_.contains(id)) return false;
      any = true;
    }
    return any;
  }

  // Returns the inputs that must be low; none for an op that stays in f32.
  std::vector<bool> low_inputs(const Node& node) const {
    std::vector<bool> none(node.inputs.size(), false), all(node.inputs.size(), true);
    const bool writes_state = std::ranges::any_of(node.outputs, [&](ValueId id) {
      return !is_weight(id) && graph_.value(id).role != Role::activation;
    });
    if (writes_state) return none;
    if (node.attributes.boolean("full_precision")) return none;
    if (node.layer != kLossLayer && !precision_.computes_low(node.layer)) return none;
    if (node.layer == kLossLayer && node.op->autocast != CastPolicy::logits) return none;
    switch (node.op->autocast) {
      case CastPolicy::low:
        return all;
      case CastPolicy::follow:
        return follows(node.inputs) ? all : none;
      case CastPolicy::follow_first:
      case CastPolicy::logits:
        none[0] = follows({node.inputs[0]});
        return none;
      case CastPolicy::f32:
      case CastPolicy::residual:
        return none;
    }
    return none;
  }

  void rewrite(Node node) {
    const std::vector<bool> low = low_inputs(node);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      ValueId& id = node.inputs[i];
      if (is_f32(id)) id = low[i] ? in_low(id) : in_f32(id);
    }
    const SpecList inputs = graph_.input_specs(node);
    const SpecList specs = node.op->output_specs(inputs, node.attributes);
    const std::vector<int> aliases = node.op->output_aliases(inputs, node.attributes, specs.size());
    for (size_t i = 0; i < specs.size(); ++i) {
      ValueId& id = node.outputs[i];
      if (specs[i] == graph_.value(id).spec) {
        present_[at(id)] = true;
        if (residual_ && node.op->autocast == CastPolicy::residual) native_.insert(id);
        continue;
      }
      check_internal(is_f32(id) && specs[i].dtype == dtype_, "autocast: {} gives {}", node.op->name,
                     to_string(specs[i]));
      const ValueId source =
          aliases[i] < 0 ? kNoValue : node.inputs[static_cast<size_t>(aliases[i])];
      const ValueId made = new_value(specs[i], source);
      low_[at(id)] = made;
      native_.insert(id);
      id = made;
    }
    graph_.nodes.push_back(std::move(node));
  }

  ValueId new_value(const TensorSpec& spec, ValueId storage_of) {
    const Role role = storage_of == kNoValue ? Role::activation : graph_.value(storage_of).role;
    return graph_.add({.spec = spec, .role = role, .storage_of = storage_of});
  }

  ValueId in_f32(ValueId id) {
    if (present_[at(id)]) return id;
    Node cast{.op = find_op("cast"),
              .attributes = {{"dtype", std::string(dtype_name(DType::f32))}},
              .inputs = {low_[at(id)]},
              .outputs = {id},
              .layer = builder_.layer(),
              .phase = Phase::forward};
    graph_.value(id).storage_of = kNoValue;  // if it was a reshape: the cast has its own memory
    graph_.nodes.push_back(std::move(cast));
    present_[at(id)] = true;
    return id;
  }

  ValueId in_low(ValueId id) {
    if (low_[at(id)] == kNoValue) low_[at(id)] = make_low(id);
    return low_[at(id)];
  }

  ValueId make_low(ValueId id) {
    const GraphValue value = graph_.value(id);
    if (value.role == Role::parameter && value.storage_of == kNoValue) {
      return builder_.add_state_of(id, "low_precision", {value.spec.shape, dtype_},
                                   Role::low_precision);
    }
    if (is_weight(id) && value.storage_of != kNoValue) {  // the same view of the copy
      return builder_.reshape(in_low(value.storage_of), value.spec.shape);
    }
    return cast_to(builder_, in_f32(id), dtype_);
  }

  std::vector<Node> nodes_;  // of the input graph
  Graph graph_;
  GraphBuilder builder_;
  const PrecisionConfig& precision_;
  DType dtype_;
  bool residual_;
  std::vector<ValueId> low_;   // per input value: its low counterpart
  std::vector<bool> present_;  // per input value: it is available in f32
  std::set<ValueId> native_;   // values computed in the low dtype, or that count as such
};

}  // namespace

Graph autocast(Graph graph, const PrecisionConfig& precision, const std::vector<ValueId>& keep) {
  if (precision.low() == DType::f32) return graph;
  Graph out = Autocast(std::move(graph), precision).run(keep);
  verify_pass(out);
  return out;
}

void emit_low_precision_update(Graph& graph) {
  GraphBuilder builder(graph);
  builder.set_phase(Phase::update);
  builder.set_layer("optimizer");
  const ValueId state = graph.newest(builder.step_state());
  std::map<ValueId, ValueId> newest;  // by storage, of what is written
  for (const Node& node : graph.nodes) {
    if (!node.op->has_effect) continue;
    for (ValueId id : node.outputs) newest[graph.storage(id)] = id;
  }
  for (ValueId copy : graph.with_role(Role::low_precision)) {
    const auto written = newest.find(graph.value(copy).of);
    if (written == newest.end() || written->second == written->first) continue;
    builder.emit("low_precision_update", {state, written->second, copy});
  }
}

}  // namespace dltrain
