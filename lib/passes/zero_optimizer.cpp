// ZeRO: each rank updates its parts. Moments exist for parts only. Parameters (or their
// low-precision copies) that every rank stores in full are all-gathered in place after the update.
#include <algorithm>

#include "base/error.h"
#include "passes/autocast.h"
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
    int64_t slot = graph_.next_slot();
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    for (Node& node : nodes) {
      if (node.phase != Phase::update) {
        graph_.nodes.push_back(std::move(node));
      } else if (node.op->name == "gradient_norm") {
        norm(node, slot);
      } else if (node.op->independent_elements) {
        optimizer(node);
      } else if (node.op->name == "low_precision_update") {
        copies(node);
      } else {
        check_internal(node.op->name != "ema_update", "ZeRO does not shard averages");
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

  void optimizer(const Node& old) {
    const auto count = static_cast<size_t>(old.attributes.integer("count"));
    const size_t kinds = (old.inputs.size() - 1) / count - 2;
    std::vector<ValueId> inputs{old.inputs[0]};
    for (const UnitParts& part : parts_) {
      if (part.unit->trainable) inputs.push_back(part.master);
    }
    const size_t units = inputs.size() - 1;
    for (const UnitParts& part : parts_) {
      if (part.unit->trainable) inputs.push_back(part.gradient);
    }
    for (size_t kind = 0; kind < kinds; ++kind) add_moments(old, count, 2 + kind, inputs);
    Attributes attributes = old.attributes;
    attributes.set("count", static_cast<int64_t>(units));
    set_groups(attributes);
    std::vector<ValueId> written = builder_.emit(old.op->name, std::move(inputs), attributes);
    size_t next = 0;
    for (UnitParts& part : parts_) {
      if (part.unit->trainable) part.master = written[next++];
    }
  }

  // Adds one kind of moment for the parts and removes the moments of full tensors.
  void add_moments(const Node& old, size_t count, size_t role, std::vector<ValueId>& inputs) {
    std::string prefix;
    for (size_t i = 0; i < count; ++i) {
      const ValueId moment = old.inputs[1 + role * count + i];
      const std::string& parameter = graph_.value(graph_.storage(old.inputs[1 + i])).name;
      const std::string& name = graph_.value(moment).name;
      prefix = name.substr(0, name.size() - parameter.size());
      make_activation(graph_, moment);
    }
    for (const UnitParts& part : parts_) {
      if (!part.unit->trainable) continue;
      const DType dtype = graph_.value(part.master).spec.dtype;
      inputs.push_back(add_part(graph_, *part.unit, prefix, dtype, Role::moment, options_));
    }
  }

  void set_groups(Attributes& attributes) const {
    std::vector<double> lr_scale, weight_decay;
    std::vector<int64_t> group;
    for (const UnitParts& part : parts_) {
      if (!part.unit->trainable) continue;
      size_t g = 0;
      while (g < lr_scale.size() &&
             (lr_scale[g] != part.unit->lr_scale || weight_decay[g] != part.unit->weight_decay)) {
        ++g;
      }
      if (g == lr_scale.size()) {
        lr_scale.push_back(part.unit->lr_scale);
        weight_decay.push_back(part.unit->weight_decay);
      }
      group.push_back(static_cast<int64_t>(g));
    }
    attributes.erase("group");
    if (lr_scale.size() > 1) attributes.set("group", group);
    attributes.set("lr_scale", lr_scale);
    attributes.set("weight_decay", weight_decay);
  }

  void copies(const Node& old) {
    std::vector<UnitParts*> with;
    for (UnitParts& part : parts_) {
      if (part.unit->trainable && part.unit->copies) with.push_back(&part);
    }
    std::vector<ValueId> inputs{old.inputs[0]};
    for (const UnitParts* part : with) inputs.push_back(part->master);
    for (const UnitParts* part : with) inputs.push_back(part->copy);
    const auto written = builder_.emit("low_precision_update", std::move(inputs),
                                       {{"count", static_cast<int64_t>(with.size())}});
    for (size_t i = 0; i < with.size(); ++i) with[i]->copy = written[i];
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
};

}  // namespace

void shard_optimizer(Graph& graph, std::vector<UnitParts>& parts, const ZeroOptions& options) {
  Update(graph, parts, options).run();
}

}  // namespace dltrain
