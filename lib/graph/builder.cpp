#include "graph/builder.h"

#include <algorithm>

#include "base/error.h"
#include "ops/step_state.h"

namespace dltrain {

ValueId GraphBuilder::add_value(std::string name, TensorSpec spec, Role role) {
  spec.shape.check_size();
  return graph_.add({.name = std::move(name), .spec = spec, .role = role});
}

ValueId GraphBuilder::add_state_of(ValueId owner, std::string kind, TensorSpec spec, Role role) {
  const ValueId out = add_value(state_name(kind, graph_.value(owner).name), spec, role);
  graph_.value(out).of = owner;
  graph_.value(out).kind = std::move(kind);
  return out;
}

ValueId GraphBuilder::step_state() {
  if (graph_.step_state == kNoValue) {
    graph_.step_state =
        add_value("step_state", {Shape{sizeof(StepState)}, DType::u8}, Role::step_state);
  }
  return graph_.step_state;
}

std::vector<ValueId> GraphBuilder::emit(std::string_view op, std::vector<ValueId> inputs,
                                        Attributes attributes) {
  Node node{.op = find_op(op),
            .attributes = std::move(attributes),
            .inputs = std::move(inputs),
            .outputs = {},
            .layer = layer_,
            .phase = phase_,
            .block = block_,
            .chunk = chunk_};
  check_internal(node.op != nullptr, "no op is named {}", op);
  const SpecList in = graph_.input_specs(node);
  SpecList specs;
  try {
    specs = node.op->output_specs(in, node.attributes);
    for (const TensorSpec& spec : specs) spec.shape.check_size();
  } catch (const Error& error) {
    if (layer_.empty() || !error.location().empty()) throw;
    throw Error(error.code(), error.what(), layer_);
  }
  const std::vector<int> aliases = node.op->output_aliases(in, node.attributes, specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    GraphValue value{.spec = specs[i], .producer = static_cast<int>(graph_.nodes.size())};
    if (aliases[i] >= 0) {
      value.storage_of = node.inputs[static_cast<size_t>(aliases[i])];
      value.role = graph_.value(value.storage_of).role;
    }
    node.outputs.push_back(graph_.add(std::move(value)));
  }
  graph_.nodes.push_back(std::move(node));
  return graph_.nodes.back().outputs;
}

// Returns `value` if only the sum reads it and its node has no other output; otherwise a copy.
ValueId GraphBuilder::as_sum(ValueId value) {
  const GraphValue& v = graph_.value(value);
  const Node* producer = graph_.producer_of(value);
  const bool own = v.storage_of == kNoValue && v.role == Role::activation && producer != nullptr &&
                   producer->outputs.size() == 1;
  const auto after = graph_.nodes.begin() + std::max(0, v.producer);
  const bool read = std::any_of(after, graph_.nodes.end(), [&](const Node& node) {
    return std::ranges::find(node.inputs, value) != node.inputs.end();
  });
  return own && !read ? value : emit1("identity", {value});
}

ValueId GraphBuilder::accumulate(ValueId value, std::string name, Role role) {
  const ValueId sum = as_sum(value);
  graph_.value(sum).name = std::move(name);
  graph_.value(sum).role = role;
  return sum;
}

ValueId GraphBuilder::accumulate_of(ValueId value, ValueId owner, std::string kind, Role role) {
  const ValueId sum = accumulate(value, state_name(kind, graph_.value(owner).name), role);
  graph_.value(sum).of = owner;
  graph_.value(sum).kind = std::move(kind);
  return sum;
}

ValueId GraphBuilder::accumulate_onto(ValueId value, ValueId sum) {
  const ValueId out = as_sum(value);
  graph_.value(out).role = graph_.value(sum).role;
  graph_.value(out).storage_of = sum;
  return out;
}

}  // namespace dltrain
