#include "passes/data_parallel.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "base/error.h"
#include "graph/memory_planner.h"
#include "passes/partition.h"
#include "passes/verify_pass.h"
#include "passes/zero_parts.h"

namespace dltrain {
namespace {

// Sums that are one message.
struct Bucket {
  std::vector<ValueId> members;  // as the micro-steps of this rank give them
  UnitParts* unit = nullptr;     // whose part this rank gets; nullptr: every rank gets the sums
  int complete = -1;             // the last node that writes a member
  bool rounded = false;          // sent in reduce_dtype
  int64_t slot = 0, slot_between = 0;  // of the message, and of the one between groups (hybrid)
  size_t group = 0;                    // of a unit's gradients
  bool of_experts = false;             // gradients that ranks with other experts do not have
  std::vector<ValueId> sent = {};      // what the message reads
  std::vector<ValueId> begun = {};     // the outputs of its begin
};

class Reductions {
 public:
  Reductions(Graph& graph, std::vector<UnitParts>& parts, const DataParallelOptions& options)
      : graph_(graph),
        builder_(graph),
        options_(options),
        scatters_always_(options.zero_stage > 1 && !parts.empty()) {
    find_buckets(parts);
    find_units(parts);
    std::ranges::stable_sort(buckets_, {}, &Bucket::complete);
    int64_t slot = graph.next_slot();
    for (Bucket& bucket : buckets_) {
      const GraphValue& sum = graph_.value(graph_.storage(bucket.members.front()));
      bucket.rounded = ranks(bucket) > 1 && options_.reduce_dtype != DType::f32 &&
                       (bucket.unit != nullptr || sum.role == Role::gradient) &&
                       sum.spec.dtype == DType::f32;
      bucket.slot = slot++;
      if (bucket.unit != nullptr && options_.hybrid()) bucket.slot_between = slot++;
    }
  }

  void run() {
    if (buckets_.empty()) return;
    size_t next = 0;
    bool ended = false;
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    for (size_t i = 0; i < nodes.size(); ++i) {
      Node& node = nodes[i];
      const Phase phase = node.phase;
      // Messages of every micro-batch end within the chunk.
      if (scatters_always_ && node.chunk != builder_.chunk()) end_scatters();
      builder_.set_chunk(node.chunk);
      if (phase == Phase::update) {
        if (!ended) end_all(Phase::update);
        ended = true;
        replace_inputs(node, reduced_);
      }
      graph_.nodes.push_back(std::move(node));
      for (; next < buckets_.size() && buckets_[next].complete == static_cast<int>(i); ++next) {
        builder_.set_phase(phase);
        begin(buckets_[next]);
      }
    }
    if (!ended) end_all(graph_.nodes.back().phase);
    graph_.update_producers();
  }

 private:
  bool is_of_experts(ValueId gradient) const {
    const Layout& layout = graph_.value(graph_.storage(gradient)).layout;
    return !layout.empty() && layout.front().axis == mesh_axes::kExpert;
  }
  // The ranks over which a bucket is partial.
  static const char* axes_of(const Bucket& bucket) {
    return bucket.of_experts ? mesh_axes::kSumsOfExpert : mesh_axes::kSums;
  }
  int ranks(const Bucket& bucket) const { return options_.mesh.size(axes_of(bucket)); }

  // Sums that every rank gets: all but the gradients of units.
  void find_buckets(const std::vector<UnitParts>& parts) {
    std::vector<bool> reduced(graph_.values.size(), false);
    const std::map<ValueId, const Node*> updates = find_updates(graph_);
    for (const UnitParts& unit : parts) {
      for (ValueId parameter : unit.parameters) {
        const auto update = updates.find(parameter);
        if (update == updates.end()) continue;
        reduced[static_cast<size_t>(graph_.storage(update->second->inputs[2]))] = true;
      }
    }
    for (const Node& node : graph_.nodes) {
      if (node.op->message != MessageKind::all_reduce) continue;
      for (ValueId id : node.inputs) reduced[static_cast<size_t>(graph_.storage(id))] = true;
    }
    const std::vector<ValueId> whole_sums = graph_.whole_sums();
    const std::vector<std::vector<int>> readers = graph_.readers();
    // Readers before the update want this rank's part (passes/gradient_squares.h).
    const auto last_use = [&](ValueId id) {
      int last = graph_.value(id).producer;
      for (const int reader : readers[static_cast<size_t>(id)]) {
        const bool early = graph_.nodes[static_cast<size_t>(reader)].phase != Phase::update;
        if (early) last = std::max(last, reader);
      }
      return last;
    };
    for (const RoleRules& rules : role_table()) {
      if (!rules.accumulates) continue;
      const GraphValue* neighbour = nullptr;
      size_t filled = 0;
      for (ValueId begun : graph_.with_role(rules.role)) {
        const ValueId id = whole_sums[static_cast<size_t>(begun)];
        const GraphValue& value = graph_.value(id);
        if (value.producer < 0 || reduced[static_cast<size_t>(begun)]) {
          neighbour = nullptr;
          continue;
        }
        const size_t bytes = align_up(value.spec.bytes());
        const bool of_experts = is_of_experts(id);
        if (neighbour == nullptr || neighbour->spec.dtype != value.spec.dtype ||
            buckets_.back().of_experts != of_experts || filled + bytes > options_.bucket_bytes) {
          buckets_.push_back({.members = {}, .of_experts = of_experts});
          filled = 0;
        }
        buckets_.back().members.push_back(id);
        buckets_.back().complete = std::max(buckets_.back().complete, last_use(id));
        filled += bytes;
        neighbour = &value;
      }
    }
  }

  // The gradients of ZeRO's units, and their memory.
  void find_units(std::vector<UnitParts>& parts) {
    const std::map<ValueId, const Node*> updates = find_updates(graph_);
    std::vector<bool> of_unit(graph_.values.size(), false);  // storages
    for (UnitParts& unit : parts) {
      if (!unit.unit->trainable) continue;
      Bucket bucket{.members = {},
                    .unit = &unit,
                    .group = graph_.groups.size(),
                    .of_experts = unit.unit->axes == mesh_axes::kStateOfExpert};
      std::vector<ValueId> roots;
      for (ValueId parameter : unit.parameters) {
        bucket.members.push_back(updates.at(parameter)->inputs[2]);
        roots.push_back(graph_.storage(bucket.members.back()));
        bucket.complete = std::max(bucket.complete, graph_.value(bucket.members.back()).producer);
        of_unit[static_cast<size_t>(roots.back())] = true;
      }
      graph_.groups.push_back(unit_group(graph_, *unit.unit, roots));
      buckets_.push_back(std::move(bucket));
    }
    for (size_t i = 0; scatters_always_ && i < graph_.values.size(); ++i) {
      const auto root = static_cast<size_t>(graph_.storage(static_cast<ValueId>(i)));
      if (of_unit[root]) graph_.values[i].role = Role::activation;
    }
  }

  // Emits a node; `always`: it runs in every micro-step.
  std::vector<ValueId> emit(const char* op, std::vector<ValueId> inputs, Attributes attributes,
                            bool always = false) {
    std::vector<ValueId> out = builder_.emit(op, std::move(inputs), std::move(attributes));
    graph_.nodes.back().once_per_step = !always && builder_.phase() != Phase::update;
    return out;
  }

  ValueId cast(ValueId x, DType dtype, bool always = false) {
    return emit("cast", {x}, {{"dtype", std::string(dtype_name(dtype))}}, always)[0];
  }

  void begin(Bucket& bucket) {
    const bool scatters = bucket.unit != nullptr, always = scatters && scatters_always_;
    if (scatters && (always || options_.hybrid())) end_scatters();
    bucket.sent = bucket.members;
    if (options_.fixed && options_.micro_steps > 1) bucket.sent = combine(bucket);
    if (ranks(bucket) == 1) {
      bucket.begun = bucket.sent;
      return;
    }
    if (bucket.rounded) {
      for (ValueId& id : bucket.sent) id = cast(id, options_.reduce_dtype, always);
      graph_.groups.push_back(scatters ? unit_group(graph_, *bucket.unit->unit, bucket.sent)
                                       : adjacent(graph_, bucket.sent));
    }
    Attributes attributes = message(bucket);
    if (!scatters) {
      bucket.begun = emit("all_reduce_begin", bucket.sent, attributes);
      return;
    }
    attributes.set("elements", bucket.unit->unit->elements);
    attributes.set("ranks", int64_t{bucket.unit->unit->ranks});
    bucket.begun = emit("reduce_scatter_begin", bucket.sent, attributes, always);
    if (!always && !bucket.rounded) lay_into_gradients(bucket, bucket.begun[0]);
    scattered_.push_back(&bucket);
  }

  Attributes message(const Bucket& bucket) const {
    const std::string axes = bucket.unit != nullptr ? bucket.unit->unit->axes : axes_of(bucket);
    return message_attributes(bucket.slot, options_.mesh.over(axes));
  }
  static Attributes message_between(const Bucket& bucket) {
    return message_attributes(bucket.slot_between, mesh_axes::kReplica);
  }

  // Emits the tree_sum of a bucket; returns the rank's sums after its last micro-step.
  std::vector<ValueId> combine(const Bucket& bucket) {
    const auto count = static_cast<int64_t>(bucket.members.size());
    const int64_t levels = std::bit_width(static_cast<uint64_t>(options_.micro_steps - 1));
    std::vector<ValueId> inputs{builder_.step_state()};
    inputs.insert(inputs.end(), bucket.members.begin(), bucket.members.end());
    for (int64_t level = 0; level < levels; ++level) {
      for (ValueId id : bucket.members) {
        const GraphValue& sum = graph_.value(graph_.storage(id));
        inputs.push_back(builder_.add_value(fmt::format("partial.{}.{}", level, sum.name), sum.spec,
                                            Role::partial));
      }
    }
    auto out = builder_.emit("tree_sum", std::move(inputs),
                             {{"count", count},
                              {"levels", levels},
                              {"micro_batch", options_.micro_batch},
                              {"micro_steps", options_.micro_steps}});
    out.resize(bucket.members.size());
    return out;
  }

  // Makes a part a window into the memory of the unit's gradients.
  void lay_into_gradients(const Bucket& bucket, ValueId id) {
    GraphValue& part = graph_.value(id);
    part.name = state_name("gradient", bucket.unit->unit->name);
    part.role = Role::partial;
    const size_t offset =
        static_cast<size_t>(options_.part(bucket.unit->unit->axes)) * part.spec.bytes();
    graph_.groups[bucket.group].members.push_back({id, offset, true});
  }

  // Casts the reduced gradient `low` to f32, into the memory of the gradient `sum`.
  ValueId widen(ValueId low, ValueId sum) {
    const ValueId root = graph_.storage(sum);
    const ValueId wide = cast(low, DType::f32);
    GraphValue& value = graph_.value(wide);
    value.name = "reduced." + graph_.value(root).name;
    value.role = Role::partial;
    graph_.groups.push_back({{{root, 0}, {wide, 0, true}}, value.spec.bytes()});
    return wide;
  }

  // Does the same for the part of a unit whose gradients are accumulated.
  ValueId widen_part(const Bucket& bucket, ValueId low) {
    const ValueId wide = cast(low, DType::f32);
    lay_into_gradients(bucket, wide);
    return wide;
  }

  void end_scatters() {
    for (Bucket* bucket : scattered_) {
      std::vector<ValueId> inputs = bucket->begun;
      inputs.insert(inputs.end(), bucket->sent.begin(), bucket->sent.end());
      ValueId part = emit("reduce_scatter_end", inputs, message(*bucket), scatters_always_)[0];
      if (scatters_always_) {
        part = bucket->rounded ? cast(part, DType::f32, true) : builder_.emit1("identity", {part});
        part = builder_.accumulate(part, state_name("gradient", bucket->unit->unit->name),
                                   Role::gradient);
      }
      bucket->unit->gradient = part;
      if (options_.hybrid()) {
        // The sum of the part over the groups, in the dtype of messages.
        if (scatters_always_ && bucket->rounded) part = cast(part, options_.reduce_dtype);
        bucket->begun = emit("all_reduce_begin", {part}, message_between(*bucket));
      } else if (!scatters_always_ && bucket->rounded) {
        bucket->unit->gradient = widen_part(*bucket, part);
      }
    }
    scattered_.clear();
  }

  void end_all(Phase phase) {
    builder_.set_phase(scatters_always_ ? Phase::backward : phase);
    end_scatters();
    builder_.set_phase(phase);
    for (Bucket& bucket : buckets_) {
      if (bucket.unit == nullptr) {
        end(bucket);
      } else if (options_.hybrid()) {
        end_between(bucket);
      }
    }
  }

  void end(const Bucket& bucket) {
    std::vector<ValueId> sums = bucket.begun;
    if (ranks(bucket) > 1) sums = emit("all_reduce_end", sums, message(bucket));
    for (size_t i = 0; i < sums.size(); ++i) {
      const ValueId member = bucket.members[i];
      reduced_[member] = bucket.rounded ? widen(sums[i], member) : sums[i];
    }
  }

  void end_between(const Bucket& bucket) {
    ValueId& part = bucket.unit->gradient;
    const ValueId sum = emit("all_reduce_end", bucket.begun, message_between(bucket))[0];
    if (!bucket.rounded) {
      part = sum;
    } else {
      part = scatters_always_ ? widen(sum, part) : widen_part(bucket, sum);
    }
  }

  Graph& graph_;
  GraphBuilder builder_;
  const DataParallelOptions& options_;
  const bool scatters_always_;      // in every micro-step (stages 2 and 3)
  std::vector<Bucket> buckets_;     // in the order in which they begin
  std::vector<Bucket*> scattered_;  // those of units that have begun and not ended
  Replacements reduced_;            // sums of this rank, and those of all ranks
};

}  // namespace

void reduce_sums(Graph& graph, std::vector<UnitParts>& parts, const DataParallelOptions& options) {
  Reductions(graph, parts, options).run();
}

Graph data_parallel(Graph graph, const DataParallelOptions& options) {
  const bool combines = options.fixed && options.micro_steps > 1;
  if (options.ranks() == 1 && !combines) return graph;
  check_internal(!options.fixed || options.ranks() == 1 ||
                     std::has_single_bit(static_cast<uint64_t>(options.micro_steps)),
                 "{} micro-steps with several ranks: not a power of two", options.micro_steps);
  std::vector<UnitParts> none;
  reduce_sums(graph, none, options);
  verify_pass(graph);
  return graph;
}

}  // namespace dltrain
