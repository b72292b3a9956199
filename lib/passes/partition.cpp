#include "passes/partition.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "config/diagnostics.h"
#include "ops/gathered_parts.h"
#include "ops/kernel.h"
#include "ops/rules.h"
#include "passes/verify_pass.h"

namespace dltrain {
namespace {

using Placements = std::vector<Placement>;

bool is_sharded(const Placement& placement) {
  return placement.kind == Placement::sharded;
}
bool is_partial(const Placement& placement) {
  return placement.kind == Placement::partial;
}

class Partition {
 public:
  Partition(Graph& graph, const PartitionOptions& options)
      : graph_(graph),
        builder_(graph),
        over_(options.mesh.over(mesh_axes::kTensor)),
        ranks_(options.ranks()),
        rank_(options.mesh.coordinate(options.rank, mesh_axes::kTensor)) {
    for (const GraphValue& value : graph_.values) {
      if (value.of != kNoValue) copies_[value.of].push_back(static_cast<ValueId>(whole_.size()));
      whole_.push_back(value.spec);
    }
    if (options.same_state == nullptr) {
      find_parameters();
      find_wanted(options.key);
      find_packed();
      return;
    }
    for (const GraphValue& value : options.same_state->values) {
      const bool cut = value.role == Role::parameter && value.shard && value.shard->cut &&
                       value.shard->cut->axis == mesh_axes::kTensor;
      const ValueId id = cut ? graph_.find(value.name) : kNoValue;
      if (id == kNoValue) continue;
      shard_parameter(id,
                      {Placement::sharded, value.shard->cut->dimension, value.shard->cut->parts});
    }
  }

  std::vector<std::string> run(std::span<ValueId* const> kept) {
    for (Node& node : std::exchange(graph_.nodes, {})) place(std::move(node));
    for (ValueId* id : kept) *id = gathered(*id);
    graph_.update_producers();
    return std::move(without_rule_);
  }

 private:
  // The placements with which a node runs on shards.
  struct Choice {
    Placements inputs, outputs;
    bool adds_later = false;  // OpDef::added_input, after the sum of the partial result
    int64_t sharded = 0;      // elements of parameters
  };

  // A parameter may be sharded if one node reads it, nodes that are alike, or nodes that all can
  // take a dimension of it as shards (tied embeddings).
  void find_parameters() {
    std::map<ValueId, std::vector<const Node*>> readers;
    for (const Node& node : graph_.nodes) {
      for (ValueId id : node.inputs) {
        if (id != kNoValue && parameter_of(id) != kNoValue) {
          readers[parameter_of(id)].push_back(&node);
        }
      }
    }
    for (const auto& [parameter, nodes] : readers) {
      const auto alike = [first = nodes[0]](const Node* node) {
        return node->op == first->op && node->attributes == first->attributes;
      };
      const Shape& shape = whole_spec(parameter).shape;
      for (int d = 0; d < shape.rank(); ++d) free_[parameter].push_back(d);
      if (!std::ranges::all_of(nodes, alike)) shared_.insert(parameter);
    }
    for (ValueId parameter : shared_) {
      std::erase_if(free_[parameter], [&](int d) {
        return !std::ranges::all_of(readers[parameter],
                                    [&](const Node* n) { return takes(*n, parameter, d); });
      });
      if (free_[parameter].empty()) free_.erase(parameter);
    }
  }

  // Returns whether a node can run with a parameter that is sharded on a dimension.
  bool takes(const Node& node, ValueId parameter, int dimension) const {
    if (node.op->place == nullptr) return false;
    const Placements whole(node.inputs.size(), kReplicated);
    return std::ranges::any_of(choices(node, whole, nullptr), [&](const Choice& choice) {
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const bool is_it = node.inputs[i] != kNoValue && parameter_of(node.inputs[i]) == parameter;
        if (is_it && choice.inputs[i].dimension != dimension) return false;
      }
      return true;
    });
  }

  // Finds the products whose columns ops want to be cut in another way than evenly, and the cuts.
  void find_wanted(const SourceLocation& key) {
    uses_ = graph_.count_uses();
    readers_ = graph_.readers();
    for (const Node& node : graph_.nodes) {
      if (node.op->wanted == nullptr) continue;
      const SpecList specs = graph_.input_specs(node);
      const auto trace_all = [&](const Placements& wanted, bool record) {
        for (size_t i = 0; i < wanted.size(); ++i) {
          if (is_sharded(wanted[i]) && !trace(node.inputs[i], wanted[i], record)) return false;
        }
        return true;
      };
      if (!trace_all(node.op->wanted(specs, node.attributes, 1), false)) continue;
      try {
        const Placements wanted = node.op->wanted(specs, node.attributes, ranks_);
        if (trace_all(wanted, false)) trace_all(wanted, true);
      } catch (const Error& e) {
        fail_at(key, "tensor {}: {}: {}", ranks_, node.layer, e.what());
      }
    }
  }

  // Products that slices divide (gate and up of gated layers) are cut in the parts of the slices.
  void find_packed() {
    for (const Node& node : graph_.nodes) {
      if (node.op->name != "slice" || wanted_.contains(node.inputs[0])) continue;
      const Shape &x = whole_spec(node.inputs[0]).shape, &y = whole_spec(node.outputs[0]).shape;
      for (int d = 1; d < x.rank(); ++d) {
        const Placement part{Placement::sharded, d, even_cut(y[d], ranks_)};
        const bool cuts = y[d] < x[d] && is_possible(part.parts, ranks_);
        if (cuts && trace(node.outputs[0], part, false)) trace(node.outputs[0], part, true);
      }
    }
  }

  // Returns the placement of a value of which the slice `node` has this placement, and other slices
  // theirs; kReplicated if they do not divide the dimension.
  Placement joined(const Node& node, const Placement& wanted) const {
    const auto axis = static_cast<size_t>(wanted.dimension);
    std::map<int64_t, Placement> slices;  // by their beginning
    for (int reader : readers_[static_cast<size_t>(node.inputs[0])]) {
      const Node& other = graph_.nodes[static_cast<size_t>(reader)];
      if (other.op != node.op) return kReplicated;
      const ValueId y = other.outputs[0];
      const auto known = wanted_.find(y);
      Placement part{Placement::sharded, wanted.dimension,
                     even_cut(whole_spec(y).shape[wanted.dimension], ranks_)};
      if (known != wanted_.end()) part = known->second;
      if (y == node.outputs[0]) part = wanted;
      slices[other.attributes.integers("before")[axis]] = part;
    }
    Placement out{wanted.kind, wanted.dimension, {}};
    for (const auto& [begin, slice] : slices) {
      const bool fits = begin == whole_extent(out.parts) && slice.dimension == wanted.dimension;
      if (!fits || !is_sharded(slice)) return kReplicated;
      out.parts.insert(out.parts.end(), slice.parts.begin(), slice.parts.end());
    }
    return out;
  }

  // Returns whether the value can have this placement because a parameter is sharded.
  bool trace(ValueId id, const Placement& wanted, bool record) {
    const int producer = graph_.value(id).producer;
    if (producer < 0) return false;
    const Node& node = graph_.nodes[static_cast<size_t>(producer)];
    if (node.op->place == nullptr || node.outputs[0] != id) return false;
    if (has_copies(wanted.parts) && uses_[static_cast<size_t>(id)] > 1) return false;
    if (record) wanted_[id] = wanted;
    Placements inputs(node.inputs.size(), kReplicated);
    if (!choices(node, inputs, &wanted).empty()) return true;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const ValueId input = node.inputs[i];
      if (input == kNoValue || is_free(input) || !is_floating(whole_spec(input).dtype)) continue;
      for (const Placement& before : sources(node, whole_spec(input).shape, wanted)) {
        inputs[i] = before;
        if (!choices(node, inputs, &wanted).empty()) return trace(input, before, record);
      }
      inputs[i] = kReplicated;
    }
    return false;
  }

  // Placements of an input that may give the placement of the output.
  std::vector<Placement> sources(const Node& node, const Shape& input,
                                 const Placement& output) const {
    if (node.op->same_elements == SameElements::view) {
      return {reshaped(output, whole_spec(node.outputs[0]).shape, input)};
    }
    if (node.op->name == "slice") return {joined(node, output)};
    std::vector<Placement> out;
    for (int d = 0; d < input.rank(); ++d) {
      if (input[d] == whole_extent(output.parts)) out.push_back(output.moved_to(d));
    }
    return out;
  }

  const TensorSpec& whole_spec(ValueId id) const { return whole_[static_cast<size_t>(id)]; }
  ValueId parameter_of(ValueId id) const {
    const GraphValue& value = graph_.value(id);
    if (value.role == Role::low_precision) return value.of;
    return value.role == Role::parameter && value.storage_of == kNoValue ? id : kNoValue;
  }
  bool is_free(ValueId id) const { return id != kNoValue && free_.contains(parameter_of(id)); }

  Placement placement(ValueId id) const {
    if (id == kNoValue || graph_.value(id).layout.empty()) return kReplicated;
    return graph_.value(id).layout.front().placement;
  }

  // The cuts that a dimension of a parameter may have: even, or as those of the node's other
  // tensors.
  std::vector<CutParts> cuts(int64_t extent, const Placements& others,
                             const Placement* wanted) const {
    std::vector<CutParts> out;
    if (CutParts even = even_cut(extent, ranks_); is_possible(even, ranks_)) out.push_back(even);
    const auto add = [&](const Placement& other) {
      const bool fits = is_sharded(other) && whole_extent(other.parts) == extent;
      if (fits && std::ranges::find(out, other.parts) == out.end()) out.push_back(other.parts);
    };
    for (const Placement& other : others) add(other);
    if (wanted != nullptr) add(*wanted);
    return out;
  }

  // Every placement of the inputs in which parameters may be sharded and the others are as given.
  std::vector<Placements> candidates(const Node& node, const Placements& given,
                                     const Placement* wanted) const {
    std::vector<Placements> out{{}};
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      std::vector<Placements> longer;
      for (const Placements& head : out) {
        const auto add = [&](Placement next) {
          longer.push_back(head);
          longer.back().push_back(std::move(next));
        };
        add(given[i]);
        if (!is_free(node.inputs[i])) continue;
        const Shape& shape = whole_spec(node.inputs[i]).shape;
        for (int d : free_.at(parameter_of(node.inputs[i]))) {
          for (CutParts& parts : cuts(shape[d], given, wanted)) {
            add({Placement::sharded, d, std::move(parts)});
          }
        }
      }
      out = std::move(longer);
    }
    return out;
  }

  // Returns the ways in which the node runs on shards; with `wanted`, those whose result has this
  // placement.
  std::vector<Choice> choices(const Node& node, const Placements& given,
                              const Placement* wanted) const {
    std::vector<Choice> out;
    const SpecList specs = whole_specs(node.inputs);
    for (Placements& inputs : candidates(node, given, wanted)) {
      if (std::ranges::none_of(inputs, is_sharded)) continue;
      auto outputs = node.op->place(specs, node.attributes, inputs);
      if (!outputs || (wanted != nullptr && outputs->front() != *wanted)) continue;
      Choice choice{.inputs = std::move(inputs), .outputs = std::move(*outputs)};
      for (size_t i = 0; i < specs.size(); ++i) {
        const bool counts = is_free(node.inputs[i]) && is_sharded(choice.inputs[i]);
        if (counts) choice.sharded += specs[i].shape.elements();
      }
      out.push_back(std::move(choice));
    }
    return out;
  }

  // Returns how the node runs on the most elements of sharded parameters; nothing if its inputs
  // must be whole.
  std::optional<Choice> choose(const Node& node, bool adds_later) const {
    const bool reads_others = std::ranges::any_of(node.inputs, [&](ValueId id) {
      return id != kNoValue && !is_free(id) && whole_spec(id).dtype != DType::u8;
    });
    const bool only_activations = std::ranges::all_of(
        node.outputs, [&](ValueId id) { return graph_.value(id).role == Role::activation; });
    if (node.op->place == nullptr || !reads_others || !only_activations) return {};
    Placements given;
    for (ValueId id : node.inputs) given.push_back(placement(id));
    const auto wanted = wanted_.find(node.outputs[0]);
    std::vector<Choice> found;
    if (wanted != wanted_.end()) found = choices(node, given, &wanted->second);
    if (found.empty()) found = choices(node, given, nullptr);
    std::erase_if(found, [&](const Choice& c) { return !is_worth_a_sum(node, c); });
    if (adds_later) std::erase_if(found, [](const Choice& c) { return !is_partial(c.outputs[0]); });
    const auto best = std::ranges::max_element(found, {}, &Choice::sharded);
    if (best == found.end()) return {};
    best->adds_later = adds_later;
    return *best;
  }

  // A sum of results that are partial only because a table is sharded must be smaller than the
  // table, unless other nodes read its shards too.
  bool is_worth_a_sum(const Node& node, const Choice& choice) const {
    if (!is_partial(choice.outputs[0])) return true;
    for (ValueId id : node.inputs) {
      if (id != kNoValue && (is_sharded(placement(id)) || shared_.contains(parameter_of(id)))) {
        return true;
      }
    }
    return choice.sharded > whole_spec(node.outputs[0]).shape.elements();
  }

  void place(Node node) {
    replace_inputs(node, summed_);
    builder_.set_place(node);
    if (node.op->emit_sharded != nullptr && emit_sharded(node)) return;
    std::optional<Choice> choice = choose(node, false);
    const auto added = static_cast<size_t>(node.op->added_input);
    const bool adds = added > 0 && added < node.inputs.size() && node.inputs[added] != kNoValue;
    if (!choice && adds) {
      Node without = node;
      without.inputs.resize(added);
      choice = choose(without, true);
    }
    if (!choice) {
      const auto shards = [this](ValueId id) { return is_sharded(placement(id)); };
      if (std::ranges::any_of(node.inputs, shards)) {
        without_rule_.push_back(fmt::format("{}: {}", node.layer, node.op->name));
      }
      for (ValueId& id : node.inputs) {
        keep_whole(id);
        id = gathered(id);
      }
      graph_.append(std::move(node));
      return;
    }
    const ValueId bias = choice->adds_later ? node.inputs[added] : kNoValue;
    if (choice->adds_later) node.inputs.resize(added);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      ValueId& id = node.inputs[i];
      const Placement& wanted = choice->inputs[i];
      if (is_free(id) && has_copies(wanted.parts)) {
        // Ranks whose shards overlap store the whole parameter, and add up its gradients.
        id = emit_ranges(builder_, read_by_shards(id), wanted.dimension,
                         cut_ranges(wanted.parts, rank_));
        whole_.resize(graph_.values.size());
      } else if (is_free(id) && is_sharded(wanted)) {
        shard_parameter(id, wanted);
      } else if (wanted == kReplicated) {
        keep_whole(id);
        id = read_by_shards(id);
      }
    }
    const std::vector<ValueId> outputs = node.outputs;
    for (size_t i = 0; i < outputs.size(); ++i) set_layout(outputs[i], choice->outputs[i]);
    localize(node, whole_specs(node.inputs), whole_spec(outputs[0]), choice->inputs,
             choice->outputs[0], rank_);
    graph_.append(std::move(node));
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!is_partial(choice->outputs[i])) continue;
      ValueId sum = emit("all_reduce", {outputs[i]}, over());
      if (bias != kNoValue) sum = emit("add", {sum, bias}, {});
      summed_[outputs[i]] = sum;
    }
  }

  // Emits the node with the messages that it needs on shards; returns whether this is possible.
  bool emit_sharded(const Node& node) {
    const SpecList specs = whole_specs(node.inputs);
    Placements placements;
    for (ValueId id : node.inputs) placements.push_back(placement(id));
    if (std::ranges::none_of(placements, is_sharded)) return false;
    const auto gathered_rows = [this](ValueId id) {
      const int64_t rows = builder_.spec(id).shape[0];
      return gather(id, {Placement::sharded, 0, {{rows * ranks_, rows}}});
    };
    const auto made = node.op->emit_sharded({.emitter = builder_,
                                             .inputs = specs,
                                             .values = node.inputs,
                                             .placements = placements,
                                             .attributes = node.attributes,
                                             .rank = rank_,
                                             .gathered_rows = gathered_rows});
    whole_.resize(graph_.values.size());
    if (made.empty()) return false;
    graph_.nodes.back().outputs = node.outputs;
    return true;
  }

  SpecList whole_specs(const std::vector<ValueId>& ids) const {
    SpecList out;
    for (ValueId id : ids) out.push_back(id == kNoValue ? absent_spec() : whole_spec(id));
    return out;
  }

  Attributes over() const { return over_.empty() ? Attributes() : Attributes{{kOver, over_}}; }

  ValueId emit(const char* op, std::vector<ValueId> inputs, Attributes attributes) {
    return recorded(builder_.emit1(op, std::move(inputs), std::move(attributes)));
  }
  ValueId recorded(ValueId made) {
    whole_.resize(graph_.values.size());
    whole_.back() = graph_.value(made).spec;
    return made;
  }

  void set_layout(ValueId id, const Placement& placement) {
    if (placement == kReplicated) return;
    graph_.value(id).layout = {{mesh_axes::kTensor, placement}};
  }

  void shard_parameter(ValueId read, const Placement& placement) {
    const ValueId parameter = parameter_of(read);
    std::vector<ValueId> sharded = copies_[parameter];
    sharded.push_back(parameter);
    for (ValueId id : sharded) {
      GraphValue& value = graph_.value(id);
      value.layout = {{mesh_axes::kTensor, placement}};
      value.shard = Shard{.whole = value.spec,
                          .cut = Cut{.axis = mesh_axes::kTensor,
                                     .dimension = placement.dimension,
                                     .ranks = ranks_,
                                     .rank = rank_,
                                     .parts = placement.parts}};
      value.spec = value.shard->stored();
    }
    free_.erase(parameter);
  }

  // A parameter that a node reads whole is not sharded for a later one.
  void keep_whole(ValueId id) {
    if (is_free(id)) free_.erase(parameter_of(id));
  }

  // Returns a replicated value as ops read it that run on shards.
  ValueId read_by_shards(ValueId id) {
    if (id == kNoValue || !is_floating(graph_.value(id).spec.dtype)) return id;
    const auto [read, first] = read_by_shards_.try_emplace(id, kNoValue);
    if (first) read->second = emit("all_reduce_gradient", {id}, over());
    return read->second;
  }

  ValueId gathered(ValueId id) {
    id = replaced(summed_, id);
    const Placement shards = placement(id);
    if (!is_sharded(shards)) return id;
    const auto [whole, first] = gathered_.try_emplace(id, kNoValue);
    if (first) whole->second = gather(id, shards);
    return whole->second;
  }

  ValueId gather(ValueId id, const Placement& shards) {
    check_internal(!has_copies(shards.parts), "copies of heads are not gathered");
    return recorded(emit_gather(builder_, id, shards, ranks_, rank_, over()));
  }

  Graph& graph_;
  GraphBuilder builder_;
  std::string over_;
  int ranks_, rank_;
  std::map<ValueId, std::vector<int>> free_;  // parameters that may be sharded, on which dimensions
  std::set<ValueId> shared_;                  // parameters that nodes read that are not alike
  std::vector<TensorSpec> whole_;             // of each value
  std::map<ValueId, std::vector<ValueId>> copies_;  // of parameters: in low precision, averages
  std::map<ValueId, Placement> wanted_;  // of results, by ops that read them (OpDef::wanted)
  std::vector<std::string> without_rule_;
  std::vector<int> uses_;  // of each value of the forward
  std::vector<std::vector<int>> readers_;
  Replacements summed_, gathered_, read_by_shards_;
};

}  // namespace

ValueId emit_gather(GraphBuilder& builder, ValueId x, const Placement& shards, int ranks, int rank,
                    Attributes over) {
  over.set("dimension", int64_t{shards.dimension});
  over.set("ranks", int64_t{ranks});
  over.set("rank", int64_t{rank});
  set_gathered_parts(over, shards.parts);
  return builder.emit1("all_gather", {x}, std::move(over));
}

void localize(Node& node, SpecSpan inputs, const TensorSpec& whole,
              std::span<const Placement> placements, const Placement& output, int rank) {
  if (node.op->localize == nullptr) return;
  TensorSpec local = whole;
  if (is_sharded(output)) local.shape[output.dimension] = cut_extent(output.parts, rank);
  node.op->localize(node.attributes, {.inputs = inputs,
                                      .whole = whole,
                                      .local = local,
                                      .placements = placements,
                                      .output = output,
                                      .rank = rank});
}

std::vector<std::string> partition(Graph& graph, const PartitionOptions& options,
                                   std::span<ValueId* const> kept) {
  if (options.ranks() == 1) return {};
  std::vector<std::string> without_rule = Partition(graph, options).run(kept);
  verify_pass(graph);
  return without_rule;
}

}  // namespace dltrain
