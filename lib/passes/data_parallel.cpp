#include "passes/data_parallel.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "base/error.h"
#include "comm/mesh.h"
#include "graph/memory_planner.h"

namespace dltrain {
namespace {

struct Bucket {
  std::vector<ValueId> members;
  int complete = -1;  // the last node that writes one of them
};

// Returns for each value if it is already reduced.
std::vector<bool> find_reduced(const Graph& graph) {
  std::vector<bool> reduced(graph.values.size(), false);
  for (const Node& node : graph.nodes) {
    if (node.op->message != MessageKind::all_reduce) continue;
    for (ValueId id : node.inputs) reduced[static_cast<size_t>(graph.storage(id))] = true;
  }
  return reduced;
}

std::vector<Bucket> make_buckets(const Graph& graph, const DataParallelOptions& options) {
  const std::vector<bool> reduced = find_reduced(graph);
  std::vector<Bucket> buckets;
  for (const RoleRules& rules : role_table()) {
    if (!rules.reduced || (rules.role == Role::gradient && !options.gradients)) continue;
    const GraphValue* neighbour = nullptr;
    size_t filled = 0;
    for (ValueId begun : graph.with_role(rules.role)) {
      const ValueId id = graph.whole_sum(begun);
      const GraphValue& value = graph.value(id);
      if (value.producer < 0 || reduced[static_cast<size_t>(begun)]) {
        neighbour = nullptr;
        continue;
      }
      const size_t bytes = align_up(value.spec.bytes());
      if (neighbour == nullptr || neighbour->spec.dtype != value.spec.dtype ||
          filled + bytes > options.bucket_bytes) {
        buckets.emplace_back();
        filled = 0;
      }
      buckets.back().members.push_back(id);
      buckets.back().complete = std::max(buckets.back().complete, value.producer);
      filled += bytes;
      neighbour = &value;
    }
  }
  std::stable_sort(buckets.begin(), buckets.end(),
                   [](const Bucket& a, const Bucket& b) { return a.complete < b.complete; });
  return buckets;
}

class Lowering {
 public:
  Lowering(Graph graph, std::vector<Bucket> buckets, const DataParallelOptions& options)
      : nodes_(std::move(graph.nodes)),
        graph_(std::move(graph)),
        builder_(graph_),
        buckets_(std::move(buckets)),
        options_(options) {
    graph_.nodes.clear();
  }

  Graph run(int64_t first_slot) {
    std::vector<ValueId> replaced(graph_.values.size());
    for (size_t i = 0; i < replaced.size(); ++i) replaced[i] = static_cast<ValueId>(i);
    size_t next = 0;
    bool ended = false;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      Node& node = nodes_[i];
      if (node.phase == Phase::update) {
        if (!ended) end_all(Phase::update, first_slot, replaced);
        ended = true;
        for (ValueId& id : node.inputs) {
          if (id != kNoValue) id = replaced[static_cast<size_t>(id)];
        }
      }
      const Phase phase = node.phase;
      graph_.nodes.push_back(std::move(node));
      for (; next < buckets_.size() && buckets_[next].complete == static_cast<int>(i); ++next) {
        begin(buckets_[next], phase, first_slot + static_cast<int64_t>(next));
      }
    }
    if (!ended) end_all(graph_.nodes.back().phase, first_slot, replaced);
    graph_.update_producers();
    return std::move(graph_);
  }

 private:
  void begin(const Bucket& bucket, Phase phase, int64_t slot) {
    builder_.set_phase(phase);
    std::vector<ValueId> sums = bucket.members;
    if (options_.fixed && options_.micro_steps > 1) sums = combine(bucket);
    if (options_.ranks > 1) {
      if (is_rounded(sums.front())) sums = rounded(sums);
      sums = builder_.emit("all_reduce_begin", sums, attributes(slot));
      graph_.nodes.back().once_per_step = true;
    }
    begun_.push_back(std::move(sums));
  }

  Attributes attributes(int64_t slot) const {
    Attributes out{{"slot", slot}};
    if (!options_.over.empty()) out.set(kOver, options_.over);
    return out;
  }

  bool is_rounded(ValueId sum) const {
    const GraphValue& value = graph_.value(graph_.storage(sum));
    return options_.reduce_dtype != DType::f32 && value.role == Role::gradient &&
           value.spec.dtype == DType::f32;
  }

  std::vector<ValueId> rounded(const std::vector<ValueId>& sums) {
    FlatGroup group;
    for (ValueId id : sums) {
      const ValueId low =
          builder_.emit1("cast", {id}, {{"dtype", std::string(dtype_name(options_.reduce_dtype))}});
      graph_.nodes.back().once_per_step = true;
      group.members.push_back({low, group.bytes});
      group.bytes += align_up(graph_.value(low).spec.bytes());
    }
    std::vector<ValueId> out;
    for (const FlatGroup::Member& member : group.members) out.push_back(member.value);
    graph_.groups.push_back(std::move(group));
    return out;
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

  void end_all(Phase phase, int64_t first_slot, std::vector<ValueId>& replaced) {
    builder_.set_phase(phase);
    for (size_t i = 0; i < begun_.size(); ++i) {
      std::vector<ValueId> reduced = begun_[i];
      if (options_.ranks > 1) {
        reduced = builder_.emit("all_reduce_end", reduced,
                                attributes(first_slot + static_cast<int64_t>(i)));
        graph_.nodes.back().once_per_step = phase != Phase::update;
      }
      for (size_t k = 0; k < reduced.size(); ++k) {
        const ValueId member = buckets_[i].members[k];
        const bool rounded = options_.ranks > 1 && is_rounded(member);
        replaced[static_cast<size_t>(member)] =
            rounded ? widen_reduced(builder_, reduced[k], member) : reduced[k];
      }
    }
  }

  std::vector<Node> nodes_;  // of the input graph
  Graph graph_;
  GraphBuilder builder_;
  std::vector<Bucket> buckets_;
  const DataParallelOptions& options_;
  std::vector<std::vector<ValueId>> begun_;  // per bucket: outputs of its begin
};

}  // namespace

ValueId widen_reduced(GraphBuilder& builder, ValueId low, ValueId sum) {
  Graph& graph = builder.graph();
  const ValueId root = graph.storage(sum);
  const ValueId wide = builder.emit1("cast", {low}, {{"dtype", "f32"}});
  GraphValue& value = graph.value(wide);
  value.name = "reduced." + graph.value(root).name;
  value.role = Role::partial;
  graph.groups.push_back({{{root, 0}, {wide, 0, true}}, value.spec.bytes()});
  return wide;
}

Graph data_parallel(Graph graph, const DataParallelOptions& options) {
  const bool combines = options.fixed && options.micro_steps > 1;
  if (options.ranks == 1 && !combines) return graph;
  check_internal(!options.fixed || options.ranks == 1 ||
                     std::has_single_bit(static_cast<uint64_t>(options.micro_steps)),
                 "{} micro-steps with several ranks: not a power of two", options.micro_steps);
  std::vector<Bucket> buckets = make_buckets(graph, options);
  if (buckets.empty()) return graph;
  const int64_t first_slot = graph.next_slot();
  Graph out = Lowering(std::move(graph), std::move(buckets), options).run(first_slot);
  verify_graph(out);
  return out;
}

}  // namespace dltrain
