#include "passes/partition.h"

#include <algorithm>
#include <map>
#include <optional>

#include "ops/kernel.h"
#include "ops/rules.h"
#include "ops/shard_position.h"

namespace dltrain {
namespace {

using Placements = std::vector<Placement>;

bool is_sharded(const Placement& placement) {
  return placement.kind == Placement::sharded;
}

class Partition {
 public:
  Partition(Graph& graph, const PartitionOptions& options)
      : graph_(graph),
        builder_(graph),
        over_(options.mesh.over(mesh_axes::kTensor)),
        cut_{.axis = mesh_axes::kTensor,
             .dimension = 0,
             .ranks = options.ranks(),
             .rank = options.mesh.coordinate(options.rank, mesh_axes::kTensor)} {
    for (const GraphValue& value : graph_.values) whole_.push_back(value.spec);
    if (options.same_state == nullptr) {
      find_parameters();
      return;
    }
    for (const GraphValue& value : options.same_state->values) {
      const bool cut = value.role == Role::parameter && value.shard && value.shard->cut;
      const ValueId id = cut ? graph_.find(value.name) : kNoValue;
      if (id != kNoValue) shard_parameter(id, value.shard->cut->dimension);
    }
  }

  void run(std::span<ValueId* const> kept) {
    for (Node& node : std::exchange(graph_.nodes, {})) place(std::move(node));
    for (ValueId* id : kept) *id = gathered(*id);
    graph_.update_producers();
  }

 private:
  // The placements with which a node runs on shards.
  struct Choice {
    Placements inputs, outputs;
    bool adds_later = false;  // OpDef::added_input, after the sum of the partial result
    int64_t sharded = 0;      // elements of parameters
  };

  // Parameters that one node reads may be sharded.
  void find_parameters() {
    std::map<ValueId, int> readers;
    for (const Node& node : graph_.nodes) {
      for (ValueId id : node.inputs) {
        if (id != kNoValue && parameter_of(id) != kNoValue) ++readers[parameter_of(id)];
      }
    }
    for (const auto& [parameter, count] : readers) {
      if (count == 1) free_.push_back(parameter);
    }
  }

  ValueId parameter_of(ValueId id) const {
    const GraphValue& value = graph_.value(id);
    if (value.role == Role::low_precision) return value.of;
    return value.role == Role::parameter && value.storage_of == kNoValue ? id : kNoValue;
  }
  bool is_free(ValueId id) const {
    return id != kNoValue && std::ranges::find(free_, parameter_of(id)) != free_.end();
  }

  Placement placement(ValueId id) const {
    if (id == kNoValue || graph_.value(id).layout.empty()) return kReplicated;
    return graph_.value(id).layout.front().placement;
  }

  // Every placement of the inputs in which parameters may be sharded and the others are as they
  // are.
  std::vector<Placements> candidates(const Node& node) const {
    std::vector<Placements> out{{}};
    for (ValueId id : node.inputs) {
      std::vector<Placements> longer;
      for (const Placements& head : out) {
        const auto add = [&](Placement next) {
          longer.push_back(head);
          longer.back().push_back(next);
        };
        add(placement(id));
        if (!is_free(id)) continue;
        const Shape& shape = whole_[static_cast<size_t>(id)].shape;
        for (int d = 0; d < shape.rank(); ++d) {
          if (Cut::is_possible(shape[d], cut_.ranks)) add({Placement::sharded, d});
        }
      }
      out = std::move(longer);
    }
    return out;
  }

  // Returns how the node runs on the most elements of sharded parameters; nothing if its inputs
  // must be whole.
  std::optional<Choice> choose(const Node& node, bool adds_later) const {
    std::optional<Choice> best;
    SpecList specs;
    bool reads_others = false;
    for (ValueId id : node.inputs) {
      specs.push_back(id == kNoValue ? absent_spec() : whole_[static_cast<size_t>(id)]);
      const bool other = id != kNoValue && !is_free(id) && is_floating(specs.back().dtype);
      reads_others = reads_others || other;
    }
    const bool only_activations = std::ranges::all_of(
        node.outputs, [&](ValueId id) { return graph_.value(id).role == Role::activation; });
    if (node.op->place == nullptr || !reads_others || !only_activations) return best;
    for (Placements& inputs : candidates(node)) {
      if (std::ranges::none_of(inputs, is_sharded)) continue;
      const auto outputs = node.op->place(specs, node.attributes, inputs);
      if (!outputs) continue;
      const bool partial = outputs->front().kind == Placement::partial;
      if (adds_later && !partial) continue;
      Choice choice{.inputs = std::move(inputs), .outputs = *outputs, .adds_later = adds_later};
      for (size_t i = 0; i < specs.size(); ++i) {
        const bool counts = is_free(node.inputs[i]) && is_sharded(choice.inputs[i]);
        if (counts) choice.sharded += specs[i].shape.elements();
      }
      if (!best || choice.sharded > best->sharded) best = std::move(choice);
    }
    return best;
  }

  void place(Node node) {
    for (ValueId& id : node.inputs) {
      if (const auto summed = summed_.find(id); summed != summed_.end()) id = summed->second;
    }
    std::optional<Choice> choice = choose(node, false);
    const auto added = static_cast<size_t>(node.op->added_input);
    const bool adds = added > 0 && added < node.inputs.size() && node.inputs[added] != kNoValue;
    if (!choice && adds) {
      Node without = node;
      without.inputs.resize(added);
      choice = choose(without, true);
    }
    builder_.set_phase(node.phase);
    builder_.set_layer(node.layer);
    builder_.set_block(node.block);
    if (!choice) {
      for (ValueId& id : node.inputs) id = gathered(id);
      graph_.append(std::move(node));
      return;
    }
    const ValueId bias = choice->adds_later ? node.inputs[added] : kNoValue;
    if (choice->adds_later) node.inputs.resize(added);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      ValueId& id = node.inputs[i];
      if (is_free(id) && is_sharded(choice->inputs[i])) {
        shard_parameter(id, choice->inputs[i].dimension);
      } else if (choice->inputs[i] == kReplicated) {
        id = read_by_shards(id);
      }
    }
    const std::vector<ValueId> outputs = node.outputs;
    for (size_t i = 0; i < outputs.size(); ++i) set_layout(outputs[i], choice->outputs[i]);
    if (node.op->uses_positions) set_position(node, choice->outputs[0].dimension);
    graph_.append(std::move(node));
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (choice->outputs[i].kind != Placement::partial) continue;
      ValueId sum = emit("all_reduce", {outputs[i]}, over());
      if (bias != kNoValue) sum = emit("add", {sum, bias}, {});
      summed_[outputs[i]] = sum;
    }
  }

  Attributes over() const { return over_.empty() ? Attributes() : Attributes{{kOver, over_}}; }

  ValueId emit(const char* op, std::vector<ValueId> inputs, Attributes attributes) {
    const ValueId out = builder_.emit1(op, std::move(inputs), std::move(attributes));
    whole_.resize(graph_.values.size());
    whole_.back() = graph_.value(out).spec;
    return out;
  }

  void set_layout(ValueId id, Placement placement) {
    if (placement == kReplicated) return;
    graph_.value(id).layout = {{mesh_axes::kTensor, placement}};
  }

  Cut cut(int dimension) const {
    Cut out = cut_;
    out.dimension = dimension;
    return out;
  }

  void shard_parameter(ValueId read, int dimension) {
    const ValueId parameter = parameter_of(read);
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      GraphValue& value = graph_.values[i];
      if (static_cast<ValueId>(i) != parameter && value.of != parameter) continue;
      value.layout = {{mesh_axes::kTensor, {Placement::sharded, dimension}}};
      value.shard = Shard{.whole = value.spec, .cut = cut(dimension)};
      value.spec = value.shard->stored();
    }
    std::erase(free_, parameter);
  }

  void set_position(Node& node, int dimension) const {
    const Shape& whole = whole_[static_cast<size_t>(node.outputs[0])].shape;
    const TensorBox box = cut(dimension).box(whole, cut_.rank);
    const int64_t inner = whole.elements(dimension + 1, whole.rank());
    ShardPosition::set(node.attributes, box.extent[dimension] * inner, whole[dimension] * inner,
                       box.offset[dimension] * inner);
  }

  // Returns a replicated value as ops read it that run on shards.
  ValueId read_by_shards(ValueId id) {
    if (id == kNoValue || !is_floating(graph_.value(id).spec.dtype)) return id;
    const auto [read, first] = read_by_shards_.try_emplace(id, kNoValue);
    if (first) read->second = emit("all_reduce_gradient", {id}, over());
    return read->second;
  }

  ValueId gathered(ValueId id) {
    if (const auto summed = summed_.find(id); summed != summed_.end()) id = summed->second;
    if (!is_sharded(placement(id))) return id;
    const auto [whole, first] = gathered_.try_emplace(id, kNoValue);
    if (first) {
      const int dimension = placement(id).dimension;
      Attributes attributes = over();
      attributes.set("dimension", int64_t{dimension});
      attributes.set("ranks", int64_t{cut_.ranks});
      attributes.set("rank", int64_t{cut_.rank});
      attributes.set("extent", whole_[static_cast<size_t>(id)].shape[dimension]);
      whole->second = emit("all_gather", {id}, std::move(attributes));
    }
    return whole->second;
  }

  Graph& graph_;
  GraphBuilder builder_;
  std::string over_;
  Cut cut_;
  std::vector<ValueId> free_;      // parameters that may still be sharded
  std::vector<TensorSpec> whole_;  // of each value
  std::map<ValueId, ValueId> summed_, gathered_, read_by_shards_;
};

}  // namespace

void partition(Graph& graph, const PartitionOptions& options, std::span<ValueId* const> kept) {
  if (options.ranks() == 1) return;
  Partition(graph, options).run(kept);
  verify_graph(graph);
}

}  // namespace dltrain
