// ZeRO: each rank updates its parts. Moments exist for parts only. Optimizers that need sums over
// whole tensors (LARS, LAMB, Adafactor) update this rank's range of each tensor. Parameters (or
// their low-precision copies) that every rank stores in full are all-gathered in place after the
// update.
#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "graph/memory_planner.h"
#include "graph/state_name.h"
#include "passes/partition.h"
#include "passes/zero_parts.h"

namespace dltrain {
namespace {

class Update {
 public:
  Update(Graph& graph, std::vector<UnitParts>& parts, const ZeroOptions& options)
      : graph_(graph), builder_(graph), parts_(parts), options_(options) {
    builder_.set_phase(Phase::update);
    builder_.set_layer("optimizer");
  }

  void run() {
    for (UnitParts& part : parts_) {
      for (ValueId id : part.parameters) unit_of_[id] = &part;
    }
    slot_ = graph_.next_slot();
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    for (Node& node : nodes) {
      const UpdateKind kind = node.op->update;
      const auto unit =
          kind > UpdateKind::norm ? unit_of_.find(graph_.storage(node.inputs[1])) : unit_of_.end();
      if (kind == UpdateKind::norm) {
        norm(node);
      } else if (unit != unit_of_.end() && node.op->independent_elements) {
        update(node, *unit->second);
      } else if (unit != unit_of_.end()) {
        update_range(node, *unit->second);
      } else {
        graph_.nodes.push_back(std::move(node));
      }
    }
    if (options_.stage < 3) collect();
    graph_.update_producers();
  }

 private:
  void norm(const Node& old) {
    std::vector<ValueId> gradients;
    for (const UnitParts& part : parts_) {
      if (!part.unit->trainable) continue;
      gradients.push_back(part.gradient);
      graph_.value(graph_.storage(part.gradient)).layout = part_layout(*part.unit);
    }
    emit_sharded_norm(builder_, old, gradients, options_.mesh, slot_);
  }

  // Replaces the nodes that update the tensors of a unit by one that updates this rank's part.
  void update(const Node& old, UnitParts& part) {
    const bool first = updated_.emplace(old.op, &part).second;
    std::vector<ValueId> inputs{old.inputs[0], part.master};
    for (size_t role = 2; role < old.inputs.size(); ++role) {
      const GraphValue state = graph_.value(graph_.storage(old.inputs[role]));
      if (old.op->update == UpdateKind::rounding) {
        inputs.push_back(part.copy);
      } else if (role == 2 && old.op->update == UpdateKind::optimizer) {
        inputs.push_back(part.gradient);
      } else {
        make_activation(graph_, old.inputs[role]);  // only parts of it are left
        if (!first) continue;
        inputs.push_back(
            add_part(graph_, *part.unit, state.kind, state.spec.dtype, state.role, options_));
      }
    }
    if (!first) return;
    const ValueId written = builder_.emit(old.op->name, std::move(inputs), old.attributes)[0];
    if (old.op->update == UpdateKind::optimizer) part.master = written;
    if (old.op->update == UpdateKind::rounding) part.copy = written;
  }

  // Replaces a node that updates a tensor by one that updates this rank's range of it. Sums over
  // ranges are added up over the ranks before the step that reads them.
  void update_range(const Node& old, UnitParts& part) {
    if (std::ranges::any_of(
            old.inputs, [&](ValueId id) { return std::ranges::find(sums_, id) != sums_.end(); })) {
      add_sums();
    }
    const auto at = std::ranges::find(part.parameters, graph_.storage(old.inputs[1]));
    const auto& member = part.unit->members[static_cast<size_t>(at - part.parameters.begin())];
    std::vector<ValueId> inputs{old.inputs[0]};
    for (size_t role = 1; role < old.inputs.size(); ++role) {
      const ValueId id = old.inputs[role];
      const auto [known, added] = now_.try_emplace(id, id);
      // Absent moments and those of another shape are not cut.
      if (added && id != kNoValue && graph_.value(id).spec.shape == member.spec.shape) {
        known->second = range(part, part_of(id, role, part, member), member);
      }
      inputs.push_back(known->second);
    }
    const Shape& shape = member.spec.shape;
    const bool matrix = shape.rank() > 1;
    Attributes attributes = old.attributes;
    attributes.set(
        "range", std::vector<int64_t>{range_in_part(*part.unit, member, options_).begin,
                                      matrix ? shape[0] : 0,
                                      matrix ? shape.elements(1, shape.rank()) : shape.elements()});
    const auto written = builder_.emit(old.op->name, std::move(inputs), attributes);
    for (size_t i = 0; i < written.size(); ++i) {
      now_[old.outputs[i]] = written[i];
      if (graph_.value(written[i]).storage_of == kNoValue) sums_.push_back(old.outputs[i]);
    }
  }

  // Returns this rank's part of the unit of a parameter, gradient or moment. Some members of a unit
  // may lack a moment.
  ValueId part_of(ValueId id, size_t role, const UnitParts& part, const ZeroUnit::Member& member) {
    if (role <= 2 && graph_.value(id).role != Role::moment) {
      return role == 1 ? part.master : part.gradient;
    }
    const GraphValue moment = graph_.value(id);
    make_activation(graph_, id);  // only parts of it are left
    const auto [known, added] = moments_.try_emplace({moment.kind, part.unit}, kNoValue);
    if (added) {
      known->second =
          builder_.add_value(state_name(moment.kind, part.unit->name),
                             {Shape{part.unit->elements}, moment.spec.dtype}, Role::moment);
    }
    record_in_part(graph_, *part.unit, member, moment.kind, known->second, options_);
    return known->second;
  }

  // Adds this rank's range of a tensor as a value of its own in the memory of its part.
  ValueId range(const UnitParts& unit, ValueId part, const ZeroUnit::Member& member) {
    const ValueId root = graph_.storage(part);
    const TensorSpec spec = graph_.value(root).spec;
    const MemberRange own = range_in_part(*unit.unit, member, options_);
    const ValueId out =
        builder_.add_value(fmt::format("{} in {}", member.parameter, graph_.value(root).name),
                           {Shape{own.count}, spec.dtype}, Role::partial);
    Graph::GroupOffset at = graph_.group_offsets()[static_cast<size_t>(root)];
    if (at.group < 0) {
      at.group = static_cast<int>(graph_.groups.size());
      graph_.groups.push_back({{{root, 0}}, spec.bytes()});
    }
    const size_t offset = at.offset + static_cast<size_t>(own.at) * dtype_size(spec.dtype);
    graph_.groups[static_cast<size_t>(at.group)].members.push_back({out, offset, true});
    return out;
  }

  void add_sums() {
    if (sums_.empty()) return;
    FlatGroup group;
    std::vector<ValueId> sums;
    for (ValueId id : sums_) {
      sums.push_back(now_.at(id));
      group.members.push_back({sums.back(), group.bytes});
      group.bytes += align_up(graph_.value(sums.back()).spec.bytes());
    }
    graph_.groups.push_back(std::move(group));
    const Attributes over = shared_collective(slot_++, options_);
    sums = builder_.emit("all_reduce_end", builder_.emit("all_reduce_begin", sums, over), over);
    for (size_t i = 0; i < sums.size(); ++i) now_[sums_[i]] = sums[i];
    sums_.clear();
  }

  // All-gathers the tensors that every rank stores in full, for the next step.
  void collect() {
    std::vector<std::pair<std::vector<ValueId>, int64_t>> begun;
    const auto begin = [&](ValueId part, const std::vector<ValueId>& tensors) {
      std::vector<ValueId> inputs{part};
      inputs.insert(inputs.end(), tensors.begin(), tensors.end());
      begun.emplace_back(
          builder_.emit("all_gather_begin", inputs, shared_collective(slot_, options_)), slot_);
      ++slot_;
    };
    for (const UnitParts& part : parts_) {
      if (part.unit->reads_master) begin(part.master, part.parameters);
      if (part.unit->copies) begin(part.copy, part.copies);
    }
    for (const auto& [tensors, its] : begun) {
      builder_.emit("all_gather_end", tensors, shared_collective(its, options_));
    }
  }

  Graph& graph_;
  GraphBuilder builder_;
  std::vector<UnitParts>& parts_;
  const ZeroOptions& options_;
  std::map<ValueId, UnitParts*> unit_of_;  // by parameter
  int64_t slot_ = 0;
  std::map<ValueId, ValueId> now_;  // values of whole tensors, and what stands for them here
  std::vector<ValueId> sums_;       // of whole tensors: not yet added up
  std::map<std::pair<std::string, const ZeroUnit*>, ValueId> moments_;  // parts
  std::set<std::pair<const OpDef*, UnitParts*>> updated_;  // of which units the part is updated
};

}  // namespace

void shard_optimizer(Graph& graph, std::vector<UnitParts>& parts, const ZeroOptions& options) {
  Update(graph, parts, options).run();
}

}  // namespace dltrain
