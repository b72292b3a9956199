// ZeRO: each rank updates its ranges of the tensors. Sums over whole tensors that an optimizer
// needs (LARS, LAMB, Adafactor) are added up over the ranks. Parameters (or their low-precision
// copies) that every rank stores in full are all-gathered in place after the update.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "ops/update.h"
#include "passes/partition.h"
#include "passes/tensor_sums.h"
#include "passes/zero_parts.h"

namespace dltrain {
namespace {

class RangeUpdate {
 public:
  RangeUpdate(Graph& graph, std::vector<UnitParts>& parts, const DataParallelOptions& options)
      : graph_(graph),
        builder_(graph),
        parts_(parts),
        options_(options),
        slot_(graph.next_slot()),
        sums_(builder_, options.mesh, slot_) {
    builder_.set_phase(Phase::update);
    builder_.set_layer("optimizer");
  }

  void run() {
    cut_tensors();
    for (Node& node : std::exchange(graph_.nodes, {})) {
      if (node.op->update == UpdateKind::norm) {
        norm(node);
      } else if (node.op->update == UpdateKind::none) {
        graph_.nodes.push_back(std::move(node));
      } else {
        update(std::move(node));
      }
    }
    if (options_.zero_stage < 3) gather();
    graph_.update_producers();
  }

 private:
  struct Member {
    Shape shape;
    FlatCut::Range range;
    std::string axes;  // over which ranges are shared out
  };

  // Adds this rank's ranges of tensors that are not stored as such: windows into its parts.
  void cut_tensors() {
    const std::map<ValueId, const Node*> updates = find_updates(graph_);
    offsets_ = graph_.group_offsets();
    for (UnitParts& unit : parts_) {
      for (const UnitParts::Gathered& gathered : unit.gathered) {
        if (options_.zero_stage < 3) cut(unit, gathered.tensors, gathered.part);
      }
      for (size_t i = 0; i < unit.parameters.size(); ++i) {
        const ValueId parameter = unit.parameters[i];
        const ZeroUnit::Member& member = unit.unit->members[i];
        const auto range = now_.find(parameter);
        members_[parameter] = {member.spec.shape, range_of(*unit.unit, member), unit.unit->axes};
        if (range != now_.end()) members_[range->second] = members_[parameter];
      }
      if (!unit.unit->trainable) continue;
      std::vector<ValueId> gradients;
      for (ValueId parameter : unit.parameters) {
        gradients.push_back(updates.at(parameter)->inputs[2]);
      }
      cut(unit, gradients, unit.gradient);
    }
  }

  void cut(const UnitParts& unit, const std::vector<ValueId>& tensors, ValueId part) {
    part = graph_.storage(part);
    const GraphValue whole = graph_.value(part);
    Graph::GroupOffset& at = offsets_[static_cast<size_t>(part)];
    if (at.group < 0) {
      at.group = static_cast<int>(graph_.groups.size());
      graph_.groups.push_back({{{part, 0}}, whole.spec.bytes()});
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      const ZeroUnit::Member& member = unit.unit->members[i];
      const FlatCut::Range own = range_of(*unit.unit, member);
      now_[tensors[i]] =
          add_window(graph_, static_cast<size_t>(at.group),
                     fmt::format("{} in {}", member.parameter, whole.name),
                     {Shape{own.count}, whole.spec.dtype},
                     at.offset + static_cast<size_t>(own.at) * dtype_size(whole.spec.dtype));
    }
  }

  FlatCut::Range range_of(const ZeroUnit& unit, const ZeroUnit::Member& member) const {
    return FlatCut{member.first, unit.elements, options_.part(unit.axes)}.range(
        member.spec.shape.elements());
  }

  void norm(const Node& old) {
    std::vector<ValueId> gradients;
    for (const UnitParts& part : parts_) {
      if (!part.unit->trainable) continue;
      gradients.push_back(part.gradient);
      graph_.value(graph_.storage(part.gradient)).layout = part.unit->layout;
    }
    for (size_t i = 1; i < old.inputs.size(); ++i) {
      if (!now_.contains(old.inputs[i])) gradients.push_back(old.inputs[i]);
    }
    emit_sharded_norm(builder_, old, gradients, options_.mesh, slot_);
  }

  // Makes a node that updates a tensor one that updates this rank's range of it. Sums over ranges
  // and shards are added up over the ranks before the step that reads them.
  void update(Node node) {
    const ValueId parameter = graph_.storage(node.inputs[1]);
    const std::string cut = cut_axis(graph_.value(parameter));
    const auto found = members_.find(parameter);
    sums_.add_up(node);
    if (found == members_.end()) {
      graph_.nodes.push_back(std::move(node));
      sums_.note(graph_.nodes.back(), cut);
      return;
    }
    const Member& member = found->second;
    replace_inputs(node, now_);
    if (!node.op->independent_elements) {
      std::vector<int64_t> range = node.attributes.integers("range");  // of shards
      if (range.empty()) range = adafactor_range(member.shape, 0, 0, {});
      range.front() = member.range.begin;
      node.attributes.set("range", range);
    } else if (member.range.count == 0) {
      return;
    }
    for (ValueId id : node.outputs) graph_.value(id).storage_of = kNoValue;
    graph_.append(std::move(node));
    sums_.note(graph_.nodes.back(), member.axes + (cut.empty() ? "" : "," + cut));
  }

  // All-gathers the tensors that every rank stores in full, for the next step.
  void gather() {
    std::vector<std::pair<std::vector<ValueId>, Attributes>> begun;  // with those of the message
    for (const UnitParts& unit : parts_) {
      for (const UnitParts::Gathered& gathered : unit.gathered) {
        std::vector<ValueId> inputs{gathered.part};
        inputs.insert(inputs.end(), gathered.tensors.begin(), gathered.tensors.end());
        const auto message = message_attributes(slot_++, options_.mesh.over(unit.unit->axes));
        begun.emplace_back(builder_.emit("all_gather_begin", inputs, message), message);
      }
    }
    for (const auto& [tensors, message] : begun) {
      builder_.emit("all_gather_end", tensors, message);
    }
  }

  Graph& graph_;
  GraphBuilder builder_;
  std::vector<UnitParts>& parts_;
  const DataParallelOptions& options_;
  int64_t slot_;
  std::map<ValueId, Member> members_;  // by parameter, and by its range
  Replacements now_;                   // whole tensors, and their ranges
  std::vector<Graph::GroupOffset> offsets_;
  TensorSums sums_;
};

}  // namespace

void shard_optimizer(Graph& graph, std::vector<UnitParts>& parts,
                     const DataParallelOptions& options) {
  RangeUpdate(graph, parts, options).run();
}

}  // namespace dltrain
