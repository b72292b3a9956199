#include "passes/stage_assignment.h"

#include <algorithm>
#include <map>
#include <string>

#include "base/error.h"

namespace dltrain {
namespace {

class StageAssigner {
 public:
  StageAssigner(const Graph& graph, const StageCut& cut)
      : graph_(graph),
        nodes_(graph.nodes),
        cut_(cut),
        last_(cut.stages() - 1),
        trains_(
            std::ranges::any_of(nodes_, [](const Node& n) { return n.phase == Phase::update; })),
        out_{.nodes = std::vector<Stages>(graph.nodes.size()),
             .owners = std::vector<Stages>(graph.values.size())} {}

  StageAssignment run() {
    assign_forward();
    assign_backward();
    join_owners();
    assign_update();
    return std::move(out_);
  }

 private:
  Stages all() const {
    Stages out;
    for (int stage = 0; stage <= last_; ++stage) out |= only(stage);
    return out;
  }
  int made_on(ValueId id, Phase phase) const { return out_.made_on(graph_, nodes_, id, phase); }

  // State that stages own, unlike the state of the step, inputs and activations.
  bool is_owned(ValueId root) const {
    const Role role = graph_.value(root).role;
    return rules_of(role).persistent && role != Role::step_state;
  }
  Stages& owners(ValueId id) { return out_.owners[static_cast<size_t>(graph_.storage(id))]; }

  // Records that a node of the forward or backward uses state.
  void claim(const Node& node, int stage) {
    const auto claim_value = [&](ValueId id) {
      if (id == kNoValue || !is_owned(graph_.storage(id))) return;
      const Role role = graph_.value(graph_.storage(id)).role;
      Stages& stages = owners(id);
      stages |= only(stage);
      const bool may_be_shared = role == Role::parameter || role == Role::low_precision ||
                                 role == Role::gradient || role == Role::ema ||
                                 role == Role::constant;
      if (is_one(stages) || may_be_shared) return;
      fail(ExitCode::usage,
           "parallelism.pipeline: stages cannot share {}; set pipeline_stages such that all layers "
           "that use it are on one stage",
           graph_.value(graph_.storage(id)).name);
    };
    for (ValueId id : node.inputs) claim_value(id);
    for (ValueId id : node.outputs) claim_value(id);
  }

  bool is_parameter(ValueId id) const {
    const Role role = graph_.value(graph_.storage(id)).role;
    return role == Role::parameter || role == Role::low_precision || role == Role::constant;
  }

  void assign_forward() {
    int current = 0;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = nodes_[i];
      if (node.phase != Phase::forward) continue;
      if (current < last_ && node.layer == cut_.begins[static_cast<size_t>(current)]) ++current;
      // A layer may go on after others: the addition of a residual block. Its backward runs on the
      // last stage that its forward has reached.
      int& layer = layers_.emplace(node.layer, current).first->second;
      int stage = layer;
      for (ValueId id : node.inputs) stage = std::max(stage, made_on(id, Phase::forward));
      layer = stage;
      out_.nodes[i] = only(stage);
      claim(node, stage);
    }
    // A head whose loss goes by chunks has no forward.
    const auto has_backward = [&](const std::string& layer) {
      return std::ranges::any_of(nodes_, [&](const Node& node) { return node.layer == layer; });
    };
    while (current < last_ && has_backward(cut_.begins[static_cast<size_t>(current)])) {
      layers_.emplace(cut_.begins[static_cast<size_t>(current)], current + 1);
      ++current;
    }
    check_internal(current == last_, "there is no layer {}",
                   current < last_ ? cut_.begins[static_cast<size_t>(current)] : "");
  }

  // A node runs on the stage of its layer, unless what it reads requires another one. A sum of
  // gradients of a later stage is made there, so that one message is enough, and so is the copy
  // that becomes the gradient of a parameter that several stages have.
  void assign_backward() {
    for (ValueId id : graph_.with_role(Role::low_precision)) {
      owners(graph_.value(id).of) |= owners(id);
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = nodes_[i];
      if (node.phase != Phase::backward) continue;
      const auto layer = layers_.find(node.layer);
      int least = 0, most = last_, gradients = 0;
      bool only_gradients = true;
      for (ValueId id : node.inputs) {
        if (id == kNoValue) continue;
        const int forward = made_on(id, Phase::forward), backward = made_on(id, Phase::backward);
        // A parameter may be on several stages, such as one that a head in chunks shares.
        const bool shareable = is_parameter(id) && layer == layers_.end();
        const Stages stages = shareable ? Stages() : owners(id);
        least = std::max(least, forward);
        if (backward >= 0) {
          most = std::min(most, backward);
          ++gradients;
        } else if (is_one(stages)) {
          least = std::max(least, first_of(stages));
          most = std::min(most, first_of(stages));
        }
        only_gradients = only_gradients && backward >= 0;
      }
      check_internal(least <= most, "{} ({}) reads values of stages {} and {}", node.op->name,
                     node.layer, least, most);
      const bool adds =
          only_gradients && node.outputs.size() == 1 &&
          (gradients > 1 || (node.op->same_elements == SameElements::copy && is_shared(node)));
      const int stage =
          adds ? most : std::clamp(layer == layers_.end() ? last_ : layer->second, least, most);
      out_.nodes[i] = only(stage);
      claim(node, stage);
    }
  }

  // Returns whether a node makes the gradient of a parameter that several stages read.
  bool is_shared(const Node& node) {
    const GraphValue& sum = graph_.value(graph_.storage(node.outputs[0]));
    return sum.role == Role::gradient && sum.of != kNoValue && !is_one(owners(sum.of));
  }

  // State that belongs to a parameter is where the parameter is.
  void join_owners() {
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      const GraphValue& value = graph_.values[i];
      if (value.of == kNoValue || value.storage_of != kNoValue) continue;
      owners(value.of) |= out_.owners[i];
    }
    for (ValueId id : graph_.with_role(Role::parameter)) {
      if (owners(id).none() && trains_) owners(id) = only(0);
    }
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      const GraphValue& value = graph_.values[i];
      if (value.of == kNoValue || value.storage_of != kNoValue) continue;
      check_internal(value.role != Role::gradient || out_.owners[i] == owners(value.of),
                     "a stage that reads {} makes no part of its gradient",
                     graph_.value(value.of).name);
      out_.owners[i] = owners(value.of);
    }
  }

  static bool is_norm(const Node& node) { return node.op->update == UpdateKind::norm; }

  // A node of the update runs where all its state is.
  void assign_update() {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = nodes_[i];
      if (node.phase != Phase::update) continue;
      Stages stages = all();
      const auto each = [&](const auto& use) {
        for (const auto* ids : {&node.inputs, &node.outputs}) {
          for (ValueId id : *ids) {
            if (id != kNoValue && is_owned(graph_.storage(id))) use(owners(id));
          }
        }
      };
      if (!is_norm(node)) {
        each([&](Stages& owner) { stages &= owner.none() ? all() : owner; });
        for (ValueId id : node.inputs) {
          const int made = id == kNoValue ? -1 : graph_.value(id).producer;
          if (made >= 0 && nodes_[static_cast<size_t>(made)].phase == Phase::update) {
            stages &= out_.nodes[static_cast<size_t>(made)];
          }
        }
        check_internal(stages.any(), "{} ({}) needs the state of several stages", node.op->name,
                       node.layer);
        each([&](Stages& owner) { owner = owner.none() ? stages : owner; });
      }
      out_.nodes[i] = stages;
    }
  }

  const Graph& graph_;
  const std::vector<Node>& nodes_;
  const StageCut& cut_;
  const int last_;  // stage
  const bool trains_;
  std::map<std::string, int> layers_;
  StageAssignment out_;
};

}  // namespace

Stages only(int stage) {
  return Stages().set(static_cast<size_t>(stage));
}
int first_of(const Stages& stages) {
  size_t stage = 0;
  while (stage < stages.size() && !stages[stage]) ++stage;
  return static_cast<int>(stage);
}
bool is_one(const Stages& stages) {
  return stages.count() == 1;
}

int StageAssignment::made_on(const Graph& graph, const std::vector<Node>& nodes_of_step, ValueId id,
                             Phase phase) const {
  const int made = id == kNoValue ? -1 : graph.value(id).producer;
  if (made < 0 || nodes_of_step[static_cast<size_t>(made)].phase != phase) return -1;
  return first_of(nodes[static_cast<size_t>(made)]);
}

StageAssignment assign_stages(const Graph& graph, const StageCut& cut) {
  return StageAssigner(graph, cut).run();
}

}  // namespace dltrain
