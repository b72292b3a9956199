// ZeRO: each rank updates its parts. Moments exist for parts only. Parameters (or their
// low-precision copies) that every rank stores in full are all-gathered in place after the update.
#include <map>
#include <set>

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
    int64_t slot = graph_.next_slot();
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    for (Node& node : nodes) {
      const UpdateKind kind = node.op->update;
      const auto unit =
          kind > UpdateKind::norm ? unit_of_.find(graph_.storage(node.inputs[1])) : unit_of_.end();
      if (kind == UpdateKind::norm) {
        norm(node, slot);
      } else if (unit != unit_of_.end()) {
        update(node, *unit->second);
      } else {
        graph_.nodes.push_back(std::move(node));
      }
    }
    if (options_.stage < 3) collect(slot);
    graph_.update_producers();
  }

 private:
  void norm(const Node& old, int64_t& slot) {
    std::vector<ValueId> gradients;
    for (const UnitParts& part : parts_) {
      if (!part.unit->trainable) continue;
      gradients.push_back(part.gradient);
      graph_.value(graph_.storage(part.gradient)).layout = part_layout(*part.unit);
    }
    emit_sharded_norm(builder_, old, gradients, options_.mesh, slot);
  }

  // Replaces the nodes that update the tensors of a unit by one that updates this rank's part.
  void update(const Node& old, UnitParts& part) {
    const bool first = updated_.emplace(old.op, &part).second;
    std::vector<ValueId> inputs{old.inputs[0], part.master};
    for (size_t role = 2; role < old.inputs.size(); ++role) {
      const GraphValue state = graph_.value(graph_.storage(old.inputs[role]));
      if (state.role == Role::low_precision) {
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

  // All-gathers the tensors that every rank stores in full, for the next step.
  void collect(int64_t slot) {
    std::vector<std::pair<std::vector<ValueId>, int64_t>> begun;
    const auto begin = [&](ValueId part, const std::vector<ValueId>& tensors) {
      std::vector<ValueId> inputs{part};
      inputs.insert(inputs.end(), tensors.begin(), tensors.end());
      begun.emplace_back(
          builder_.emit("all_gather_begin", inputs, shared_collective(slot, options_)), slot);
      ++slot;
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
  std::map<ValueId, UnitParts*> unit_of_;                  // by parameter
  std::set<std::pair<const OpDef*, UnitParts*>> updated_;  // of which units the part is updated
};

}  // namespace

void shard_optimizer(Graph& graph, std::vector<UnitParts>& parts, const ZeroOptions& options) {
  Update(graph, parts, options).run();
}

}  // namespace dltrain
