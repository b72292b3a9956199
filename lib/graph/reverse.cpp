#include "graph/reverse.h"

#include <algorithm>

#include "base/error.h"
#include "graph/builder.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

class Reverse {
 public:
  Reverse(Graph& graph, const std::vector<ValueId>& parameters)
      : graph_(graph), builder_(graph), parameters_(parameters) {
    builder_.set_phase(Phase::backward);
    mark_dependents();
  }

  std::vector<ParameterGradient> run(const std::vector<ValueId>& losses,
                                     const std::vector<AddedLosses>& added) {
    const size_t forward_nodes = graph_.nodes.size();
    partials_.resize(graph_.values.size());
    for (ValueId loss : losses) {
      const ValueId seed = builder_.emit1("loss_seed", {builder_.step_state(), loss});
      partials_[static_cast<size_t>(loss)].push_back(seed);
    }
    for (const AddedLosses& loss : added) {
      builder_.set_layer(graph_.producer_of(loss.value)->layer);
      const ValueId seed = builder_.emit1("loss_seed", {builder_.step_state(), loss.value},
                                          {{"weights", loss.weights}});
      partials_[static_cast<size_t>(loss.value)].push_back(seed);
    }
    const std::vector<int> last_use = last_forward_reader(forward_nodes);
    std::vector<ParameterGradient> out;
    for (size_t i = forward_nodes; i-- > 0;) {
      differentiate(i);
      // A parameter's gradient is complete once its earliest reader is done.
      for (ValueId parameter : parameters_) {
        if (last_use[static_cast<size_t>(parameter)] != static_cast<int>(i)) continue;
        if (const ValueId g = finish(parameter); g != kNoValue) out.push_back({parameter, g});
      }
    }
    return out;
  }

 private:
  // Marks the values that depend on a wanted parameter.
  void mark_dependents() {
    depends_.assign(graph_.values.size(), false);
    weight_.assign(graph_.values.size(), kNoValue);
    for (ValueId p : parameters_) weight_[static_cast<size_t>(p)] = p;
    for (size_t i = 0; i < weight_.size(); ++i) {
      const ValueId owner = graph_.values[i].of;
      if (owner != kNoValue) weight_[i] = weight_[static_cast<size_t>(owner)];
      depends_[i] = weight_[i] != kNoValue;
    }
    for (const Node& node : graph_.nodes) {
      if (node.op->gradient == nullptr) continue;
      const bool any = std::ranges::any_of(node.inputs, [&](ValueId id) {
        return id != kNoValue && depends_[static_cast<size_t>(id)];
      });
      for (ValueId id : node.outputs) depends_[static_cast<size_t>(id)] = any;
    }
  }

  // Returns for each value the earliest forward node that reads it (for a parameter: it or its
  // copy). The backward of that node completes the value's gradient.
  std::vector<int> last_forward_reader(size_t forward_nodes) const {
    std::vector<int> first(graph_.values.size(), -1);
    for (size_t i = forward_nodes; i-- > 0;) {
      for (ValueId id : graph_.nodes[i].inputs) {
        if (id == kNoValue) continue;
        first[static_cast<size_t>(id)] = static_cast<int>(i);
        const ValueId weight = weight_[static_cast<size_t>(id)];
        if (weight != kNoValue) first[static_cast<size_t>(weight)] = static_cast<int>(i);
      }
    }
    return first;
  }

  // Returns the sum of the partial gradients of a value; kNoValue when there are none.
  ValueId total(ValueId id) {
    auto& parts = partials_[static_cast<size_t>(id)];
    if (parts.empty()) return kNoValue;
    ValueId sum = parts[0];
    for (size_t i = 1; i < parts.size(); ++i) sum = builder_.emit1("add", {sum, parts[i]});
    parts.assign(1, sum);
    return sum;
  }

  void differentiate(size_t index) {
    const Node node = graph_.nodes[index];  // a copy: emitting moves the vector
    std::vector<bool> wanted(node.inputs.size(), false);
    bool any_wanted = false;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      wanted[i] = node.inputs[i] != kNoValue && depends_[static_cast<size_t>(node.inputs[i])];
      any_wanted = any_wanted || wanted[i];
    }
    if (!any_wanted || node.op->gradient == nullptr) return;
    builder_.set_layer(node.layer);
    std::vector<ValueId> output_gradients;
    bool any_gradient = false;
    for (ValueId id : node.outputs) {
      output_gradients.push_back(total(id));
      any_gradient = any_gradient || output_gradients.back() != kNoValue;
    }
    if (!any_gradient) return;
    const auto gradients = node.op->gradient({.emitter = builder_,
                                              .inputs = node.inputs,
                                              .outputs = node.outputs,
                                              .output_gradients = output_gradients,
                                              .wanted = wanted,
                                              .attributes = node.attributes});
    check_gradients(node, gradients);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (wanted[i] && gradients[i] != kNoValue) add_partial(node.inputs[i], gradients[i]);
    }
  }

  // The rule of an op gives a gradient, or kNoValue, for each input, of its shape. Ops may come
  // from plug-ins.
  void check_gradients(const Node& node, const std::vector<ValueId>& gradients) const {
    // Gradients of optional inputs that are left out are kNoValue.
    const bool fewer = gradients.size() < node.inputs.size();
    if (fewer || std::any_of(gradients.begin() + std::ssize(node.inputs), gradients.end(),
                             [](ValueId id) { return id != kNoValue; })) {
      fail(ExitCode::usage, "op {}: its gradient rule returns {} values for {} inputs",
           node.op->name, gradients.size(), node.inputs.size());
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (gradients[i] == kNoValue || node.inputs[i] == kNoValue) continue;
      const bool exists =
          gradients[i] >= 0 && static_cast<size_t>(gradients[i]) < graph_.values.size();
      if (exists &&
          graph_.value(gradients[i]).spec.shape == graph_.value(node.inputs[i]).spec.shape)
        continue;
      fail(ExitCode::usage, "op {}: its gradient of input {}, {}, {}", node.op->name, i,
           to_string(graph_.value(node.inputs[i]).spec.shape),
           exists ? "has shape " + to_string(graph_.value(gradients[i]).spec.shape)
                  : "is a value that does not exist");
    }
  }

  // Partial gradients of a parameter and of its copy are collected together, in the accumulation
  // dtype.
  void add_partial(ValueId input, ValueId gradient) {
    const ValueId weight = weight_[static_cast<size_t>(input)];
    const DType own = graph_.value(input).spec.dtype;
    const DType dtype = weight == kNoValue ? own : accumulation_dtype(own);
    partials_[static_cast<size_t>(weight == kNoValue ? input : weight)].push_back(
        cast_to(builder_, gradient, dtype));
  }

  ValueId finish(ValueId parameter) {
    const auto parts = partials_[static_cast<size_t>(parameter)];
    ValueId sum = kNoValue;
    // With a parameter shared by several layers, each layer adds to the sum so far.
    for (ValueId part : parts) {
      // dy may reach several values unchanged (through add): a sum over micro-steps needs its own
      // copy.
      int holders = 0;
      for (const auto& others : partials_) {
        holders += static_cast<int>(std::ranges::count(others, part));
      }
      // A gradient computed before the sum exists cannot be added to it by its own node.
      const bool too_early =
          sum != kNoValue && graph_.value(part).producer < graph_.value(sum).producer;
      if (holders > 1 || too_early) part = builder_.emit1("identity", {part});
      sum = sum == kNoValue ? builder_.accumulate_of(part, parameter, "gradient", Role::gradient)
                            : builder_.accumulate_onto(part, sum);
    }
    return sum;
  }

  Graph& graph_;
  GraphBuilder builder_;
  const std::vector<ValueId>& parameters_;
  std::vector<bool> depends_;
  std::vector<ValueId> weight_;  // per forward value: the parameter that it is, or is a copy of
  std::vector<std::vector<ValueId>> partials_;  // per forward value
};

}  // namespace

std::vector<ParameterGradient> reverse(Graph& graph, const std::vector<ValueId>& losses,
                                       const std::vector<ValueId>& parameters,
                                       const std::vector<AddedLosses>& added) {
  return Reverse(graph, parameters).run(losses, added);
}

}  // namespace dltrain
