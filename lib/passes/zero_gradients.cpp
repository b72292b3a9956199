// ZeRO: reduce-scatters the gradients of a unit over the ranks.
//
// Stage 1: gradients are accumulated over the micro-steps in their own memory. In the last
// micro-step the reduction begins when the unit's last gradient is complete; the update waits for
// it. The part is a window into that memory. Stage 2: gradients live in the memory of activations
// from their first writer to the reduction, which every micro-step has, and only the part is
// accumulated. The wait is placed where the next unit's reduction begins: one unit is sent while
// the next is computed, and at most two exist.
//
// Hybrid: both stages wait there, since in the last micro-step the sum of the part over the groups
// follows, for which the update waits.
#include <algorithm>

#include "base/error.h"
#include "comm/mesh.h"
#include "graph/state_name.h"
#include "passes/data_parallel.h"
#include "passes/zero_parts.h"

namespace dltrain {
namespace {

struct Reduction {
  UnitParts* parts = nullptr;
  std::vector<ValueId> gradients;      // complete sums of a micro-step (or of all, in stage 1)
  int complete = -1;                   // the last node that writes one of them
  int64_t slot = 0, slot_between = 0;  // within a group, and between groups
  DType dtype = DType::f32;
  size_t group = 0;  // of the gradients
  ValueId begun = kNoValue;
  ValueId between = kNoValue;  // the part while it is summed over groups
};

class Gradients {
 public:
  Gradients(Graph& graph, std::vector<UnitParts>& parts, const ZeroOptions& options)
      : graph_(graph), builder_(graph), options_(options), per_step_(options.stage == 1) {
    find(parts);
  }

  void run() {
    nodes_ = std::exchange(graph_.nodes, {});
    size_t next = 0;
    bool ended = false;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const Phase phase = nodes_[i].phase;
      if (phase == Phase::update && !ended) {
        builder_.set_phase(per_step_ ? Phase::update : Phase::backward);
        end_all();
        builder_.set_phase(Phase::update);
        for (Reduction& r : reductions_) end_between(r);
        ended = true;
      }
      graph_.nodes.push_back(std::move(nodes_[i]));
      for (; next < reductions_.size() && reductions_[next].complete == static_cast<int>(i);
           ++next) {
        builder_.set_phase(phase);
        if (!per_step_ || options_.hybrid()) end_all();
        begin(reductions_[next]);
      }
    }
    graph_.update_producers();
  }

 private:
  void find(std::vector<UnitParts>& parts) {
    const std::map<ValueId, const Node*> updates = find_updates(graph_);
    int64_t slot = graph_.next_slot();
    for (UnitParts& unit : parts) {
      if (!unit.unit->trainable) continue;
      Reduction r{.parts = &unit, .gradients = {}};
      for (ValueId parameter : unit.parameters) {
        r.gradients.push_back(updates.at(parameter)->inputs[2]);
        r.complete = std::max(r.complete, graph_.value(r.gradients.back()).producer);
      }
      reductions_.push_back(std::move(r));
    }
    std::stable_sort(
        reductions_.begin(), reductions_.end(),
        [](const Reduction& a, const Reduction& b) { return a.complete < b.complete; });
    for (Reduction& r : reductions_) {
      r.slot = slot++;
      if (options_.hybrid()) r.slot_between = slot++;
      place(r);
    }
  }

  // Chooses the memory of the gradients.
  void place(Reduction& r) {
    std::vector<ValueId> roots;
    for (ValueId id : r.gradients) roots.push_back(graph_.storage(id));
    r.dtype = graph_.value(roots.front()).spec.dtype;
    r.group = graph_.groups.size();
    graph_.groups.push_back(unit_group(graph_, *r.parts->unit, roots, r.dtype, options_));
    if (per_step_) return;
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      const ValueId root = graph_.storage(static_cast<ValueId>(i));
      if (std::find(roots.begin(), roots.end(), root) == roots.end()) continue;
      make_activation(graph_, static_cast<ValueId>(i));
    }
  }

  void begin(Reduction& r) {
    const ZeroUnit& unit = *r.parts->unit;
    if (is_rounded(r)) round(r);
    Attributes attributes = shared_collective(r.slot, options_);
    attributes.set("elements", unit.elements);
    attributes.set("ranks", int64_t{options_.ranks()});
    r.begun = builder_.emit1("reduce_scatter_begin", r.gradients, attributes);
    graph_.nodes.back().once_per_step = per_step_;
    if (per_step_ && !is_rounded(r)) lay_into_gradients(r, r.begun);
    under_way_.push_back(&r);
  }

  bool is_rounded(const Reduction& r) const {
    return options_.reduce_dtype != DType::f32 && r.dtype == DType::f32;
  }

  // Casts the gradients of the unit to the dtype in which they are sent.
  void round(Reduction& r) {
    for (ValueId& id : r.gradients) {
      id =
          builder_.emit1("cast", {id}, {{"dtype", std::string(dtype_name(options_.reduce_dtype))}});
      graph_.nodes.back().once_per_step = per_step_;
    }
    graph_.groups.push_back(
        unit_group(graph_, *r.parts->unit, r.gradients, options_.reduce_dtype, options_));
  }

  // Makes the part a window into the memory of the gradients.
  void lay_into_gradients(const Reduction& r, ValueId id) {
    GraphValue& part = graph_.value(id);
    part.name = state_name("gradient", r.parts->unit->name);
    part.role = Role::partial;
    const auto offset = static_cast<size_t>(options_.part() * r.parts->unit->elements);
    graph_.groups[r.group].members.push_back({id, offset * dtype_size(part.spec.dtype), true});
  }

  void end_all() {
    for (Reduction* r : under_way_) {
      std::vector<ValueId> inputs{r->begun};
      inputs.insert(inputs.end(), r->gradients.begin(), r->gradients.end());
      ValueId part =
          builder_.emit1("reduce_scatter_end", inputs, shared_collective(r->slot, options_));
      graph_.nodes.back().once_per_step = per_step_ && builder_.phase() == Phase::backward;
      if (!per_step_) {
        part = is_rounded(*r) ? builder_.emit1("cast", {part}, {{"dtype", "f32"}})
                              : builder_.emit1("identity", {part});
        part =
            builder_.accumulate(part, state_name("gradient", r->parts->unit->name), Role::gradient);
      }
      r->parts->gradient = part;
      if (options_.hybrid()) {
        begin_between(*r);
      } else if (per_step_ && is_rounded(*r)) {
        widen(*r);
      }
    }
    under_way_.clear();
  }

  // Casts the received part to f32, into the memory of the gradients.
  void widen(Reduction& r) {
    r.parts->gradient = builder_.emit1("cast", {r.parts->gradient}, {{"dtype", "f32"}});
    lay_into_gradients(r, r.parts->gradient);
  }

  Attributes between(const Reduction& r) const {
    return {{"slot", r.slot_between}, {kOver, std::string(mesh_axes::kReplica)}};
  }

  // After the last micro-step: begins the sum of the part over the groups, in the dtype of
  // messages.
  void begin_between(Reduction& r) {
    const bool last = builder_.phase() == Phase::backward;
    r.between = r.parts->gradient;
    if (!per_step_ && is_rounded(r)) {
      r.between = builder_.emit1("cast", {r.between},
                                 {{"dtype", std::string(dtype_name(options_.reduce_dtype))}});
      graph_.nodes.back().once_per_step = last;
    }
    r.between = builder_.emit1("all_reduce_begin", {r.between}, between(r));
    graph_.nodes.back().once_per_step = last;
  }

  void end_between(Reduction& r) {
    if (r.between == kNoValue) return;
    const ValueId sum = r.parts->gradient;
    r.parts->gradient = builder_.emit1("all_reduce_end", {r.between}, between(r));
    if (is_rounded(r) && per_step_) widen(r);
    if (is_rounded(r) && !per_step_) {
      r.parts->gradient = widen_reduced(builder_, r.parts->gradient, sum);
    }
  }

  Graph& graph_;
  GraphBuilder builder_;
  const ZeroOptions& options_;
  bool per_step_;
  std::vector<Node> nodes_;
  std::vector<Reduction> reductions_;  // in the order in which they begin
  std::vector<Reduction*> under_way_;
};

}  // namespace

void shard_gradients(Graph& graph, std::vector<UnitParts>& parts, const ZeroOptions& options) {
  Gradients(graph, parts, options).run();
}

}  // namespace dltrain
