#include "passes/data_parallel.h"

#include <algorithm>

#include "graph/builder.h"
#include "graph/memory_planner.h"

namespace dltrain {
namespace {

struct Bucket {
  std::vector<ValueId> members;
  int complete = -1;  // the last node that writes one of them
};

// True where the sum is reduced already.
std::vector<bool> find_reduced(const Graph& graph) {
  std::vector<bool> reduced(graph.values.size(), false);
  for (const Node& node : graph.nodes) {
    if (node.op->name != "all_reduce_begin") continue;
    for (ValueId id : node.inputs) reduced[static_cast<size_t>(graph.storage(id))] = true;
  }
  return reduced;
}

std::vector<Bucket> make_buckets(const Graph& graph, size_t bucket_bytes) {
  const std::vector<bool> reduced = find_reduced(graph);
  std::vector<Bucket> buckets;
  for (const RoleRules& rules : role_table()) {
    if (!rules.reduced) continue;
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
          filled + bytes > bucket_bytes) {
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

int64_t next_slot(const Graph& graph) {
  int64_t next = 0;
  for (const Node& node : graph.nodes) {
    next = std::max(next, node.attributes.integer("slot", -1) + 1);
  }
  return next;
}

class Lowering {
 public:
  Lowering(Graph graph, std::vector<Bucket> buckets)
      : nodes_(std::move(graph.nodes)),
        graph_(std::move(graph)),
        builder_(graph_),
        buckets_(std::move(buckets)) {
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
    begun_.push_back(builder_.emit("all_reduce_begin", bucket.members, {{"slot", slot}}));
    graph_.nodes.back().once_a_step = true;
  }

  void end_all(Phase phase, int64_t first_slot, std::vector<ValueId>& replaced) {
    builder_.set_phase(phase);
    for (size_t i = 0; i < begun_.size(); ++i) {
      const auto reduced = builder_.emit("all_reduce_end", begun_[i],
                                         {{"slot", first_slot + static_cast<int64_t>(i)}});
      graph_.nodes.back().once_a_step = phase != Phase::update;
      for (size_t k = 0; k < reduced.size(); ++k) {
        replaced[static_cast<size_t>(buckets_[i].members[k])] = reduced[k];
      }
    }
  }

  std::vector<Node> nodes_;  // of the graph that came in
  Graph graph_;
  GraphBuilder builder_;
  std::vector<Bucket> buckets_;
  std::vector<std::vector<ValueId>> begun_;  // per bucket: outputs of its begin
};

}  // namespace

Graph data_parallel(Graph graph, const DataParallelOptions& options) {
  if (options.ranks == 1) return graph;
  std::vector<Bucket> buckets = make_buckets(graph, options.bucket_bytes);
  if (buckets.empty()) return graph;
  const int64_t first_slot = next_slot(graph);
  Graph out = Lowering(std::move(graph), std::move(buckets)).run(first_slot);
  verify_graph(out);
  return out;
}

}  // namespace dltrain
