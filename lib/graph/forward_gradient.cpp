#include "graph/forward_gradient.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/error.h"
#include "base/philox.h"
#include "graph/builder.h"
#include "ops/rules.h"
#include "ops/tangents.h"

namespace dltrain {
namespace {

class ForwardGradient {
 public:
  ForwardGradient(Graph& graph, ValueId loss, const std::vector<ValueId>& parameters,
                  int directions, const std::vector<AddedLosses>& added)
      : graph_(graph),
        builder_(graph),
        loss_(loss),
        parameters_(parameters),
        added_(added),
        tangents_(static_cast<size_t>(directions)) {}

  std::vector<ParameterGradient> run() {
    const std::vector<bool> needed = needed_for_losses();
    const std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    for (size_t i = 0; i < nodes.size(); ++i) {
      graph_.nodes.push_back(nodes[i]);
      if (!needed[i]) continue;
      builder_.set_place(nodes[i]);
      for (size_t direction = 0; direction < tangents_.size(); ++direction) {
        add_tangent(nodes[i], direction);
      }
    }
    graph_.update_producers();
    return gradients();
  }

 private:
  // Returns the nodes that the losses depend on.
  std::vector<bool> needed_for_losses() const {
    std::vector<bool> needed(graph_.nodes.size(), false), values(graph_.values.size(), false);
    values[static_cast<size_t>(loss_)] = true;
    for (const AddedLosses& loss : added_) values[static_cast<size_t>(loss.value)] = true;
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      const Node& node = graph_.nodes[i];
      needed[i] = std::ranges::any_of(node.outputs,
                                      [&](ValueId id) { return values[static_cast<size_t>(id)]; });
      for (ValueId id : node.inputs) {
        if (needed[i] && id != kNoValue) values[static_cast<size_t>(id)] = true;
      }
    }
    return needed;
  }

  void add_tangent(const Node& node, size_t direction) {
    std::vector<ValueId> tangents;
    for (ValueId id : node.inputs) tangents.push_back(tangent_of(id, direction));
    if (std::ranges::all_of(tangents, [](ValueId id) { return id == kNoValue; })) return;
    const auto made = tangent({.emitter = builder_,
                               .op = *node.op,
                               .inputs = node.inputs,
                               .outputs = node.outputs,
                               .tangents = tangents,
                               .attributes = node.attributes},
                              is_loss(*node.op) ? seed_of(node.outputs[0]) : kNoValue);
    if (!made) {
      throw Error(ExitCode::usage,
                  fmt::format("training.gradient: forward has no rule for {}", node.op->name),
                  node.layer);
    }
    if (*made != kNoValue) tangents_[direction][node.outputs[0]] = *made;
  }

  // Parts of the loss, whose sum the graph computes, have its seed.
  ValueId seed_of(ValueId loss) {
    const auto added = std::ranges::find(added_, loss, &AddedLosses::value);
    Attributes weights;
    if (added != added_.end()) weights.set("weights", added->weights);
    return builder_.emit1("loss_seed", {builder_.step_state(), loss}, weights);
  }

  // Returns the tangent of a value, or kNoValue: that of a parameter is its direction.
  ValueId tangent_of(ValueId id, size_t direction) {
    if (id == kNoValue) return kNoValue;
    auto& known = tangents_[direction];
    if (const auto found = known.find(id); found != known.end()) return found->second;
    const GraphValue& value = graph_.value(id);
    const ValueId parameter = value.role == Role::low_precision ? value.of : id;
    if (std::ranges::find(parameters_, parameter) == parameters_.end()) return kNoValue;
    used_.insert(parameter);
    return known[id] = cast_to(builder_, random_direction(parameter, direction), value.spec.dtype);
  }

  // Emits a direction of the parameter, in the accumulation dtype.
  ValueId random_direction(ValueId parameter, size_t direction) {
    const GraphValue& value = graph_.value(parameter);
    const DType dtype = accumulation_dtype(value.spec.dtype);
    const uint64_t stream = random_stream(fmt::format("direction {} of {}", direction, value.name));
    return builder_.emit1("random_direction", {builder_.step_state()},
                          {{"shape", value.spec.shape.list()},
                           {"dtype", std::string(dtype_name(dtype))},
                           {"stream", static_cast<int64_t>(stream)}});
  }

  // Returns (∇f·v)·v, averaged over the directions.
  std::vector<ParameterGradient> gradients() {
    builder_.set_phase(Phase::backward);
    builder_.set_block(-1);
    std::vector<ParameterGradient> out;
    if (parameters_.empty()) return out;
    std::vector<ValueId> derivatives;
    for (size_t i = 0; i < tangents_.size(); ++i) derivatives.push_back(derivative(i));
    if (derivatives.front() == kNoValue) return out;  // it depends on no parameter
    for (ValueId parameter : parameters_) {
      if (!used_.contains(parameter)) continue;
      ValueId sum = kNoValue;
      for (size_t direction = 0; direction < tangents_.size(); ++direction) {
        const ValueId part = estimate(parameter, direction, derivatives[direction]);
        sum = sum == kNoValue ? builder_.accumulate_of(part, parameter, "gradient", Role::gradient)
                              : builder_.accumulate_onto(part, sum);
      }
      out.push_back({parameter, sum});
    }
    return out;
  }

  // Returns ∇f·v, f the sum of the losses.
  ValueId derivative(size_t direction) {
    const auto& tangents = tangents_[direction];
    std::vector<ValueId> losses{loss_};
    for (const AddedLosses& loss : added_) losses.push_back(loss.value);
    const DType dtype = accumulation_dtype(graph_.value(parameters_.front()).spec.dtype);
    ValueId sum = kNoValue;
    for (ValueId loss : losses) {
      const auto found = tangents.find(loss);
      if (found == tangents.end()) continue;
      const ValueId part = cast_to(builder_, found->second, dtype);
      sum = sum == kNoValue ? part : builder_.emit1("add", {sum, part});
    }
    return sum;
  }

  ValueId estimate(ValueId parameter, size_t direction, ValueId derivative) {
    const std::string& name = graph_.value(parameter).name;
    builder_.set_layer(name.substr(0, name.rfind('.')));
    const ValueId v = random_direction(parameter, direction);
    const ValueId along_v = cast_to(builder_, derivative, graph_.value(v).spec.dtype);
    const ValueId share = builder_.scaled(along_v, 1.0 / static_cast<double>(tangents_.size()));
    return builder_.emit1("mul", {v, share});
  }

  Graph& graph_;
  GraphBuilder builder_;
  ValueId loss_;
  const std::vector<ValueId>& parameters_;
  const std::vector<AddedLosses>& added_;
  std::vector<std::map<ValueId, ValueId>> tangents_;  // [direction]
  std::set<ValueId> used_;                            // parameters that the loss depends on
};

}  // namespace

std::vector<ParameterGradient> forward_gradient(Graph& graph, ValueId loss,
                                                const std::vector<ValueId>& parameters,
                                                int directions,
                                                const std::vector<AddedLosses>& added) {
  return ForwardGradient(graph, loss, parameters, directions, added).run();
}

}  // namespace dltrain
