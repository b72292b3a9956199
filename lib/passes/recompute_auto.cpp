// Recompute::automatic: makes a chain of the forward (passes/recompute_chain.h) and translates its
// schedule into values.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "passes/forward_cuts.h"
#include "passes/recompute.h"
#include "passes/recompute_chain.h"

namespace dltrain {
namespace {

// Longer chains are joined to so many stages, and stages with more choices have the same memory
// and time at fewer points.
constexpr size_t kMostParts = 64, kMostChoices = 24;
constexpr int kMemorySteps = 600;

// Returns values over which the forward cannot be cut because they are read much later (skip
// connections, the output of an encoder); they are kept. A stage should have few nodes.
std::vector<bool> long_lived(const Graph& graph) {
  const size_t count = forward_nodes(graph);
  std::vector<bool> out(graph.values.size(), false);
  std::vector<size_t> begin(graph.values.size(), 0), end(graph.values.size(), 0);
  std::vector<size_t> position(count + 1, 0);  // the number of nodes before it that count
  for (size_t i = 0; i < count; ++i) {
    for (ValueId id : graph.nodes[i].inputs) {
      if (id != kNoValue) end[static_cast<size_t>(graph.storage(id))] = position[i];
    }
    for (ValueId id : graph.nodes[i].outputs) begin[static_cast<size_t>(id)] = position[i];
    position[i + 1] = position[i] + (graph.nodes[i].attributes.has(kNeverAgain) ? 0 : 1);
  }
  constexpr size_t kFew = 16;
  for (size_t round = 0; round < kMostParts; ++round) {
    size_t from = 0, widest_from = 0, widest_end = 0, widest = 0;
    for (const ForwardCut& cut : find_forward_cuts(graph, out)) {
      const size_t next = cut.after + 1, width = position[next] - position[from];
      if (width > widest) widest = width, widest_from = from, widest_end = next;
      from = next;
    }
    if (widest <= std::max(kFew, position[count] / 8)) break;
    ValueId longest = kNoValue;
    size_t length = kFew;
    for (size_t i = widest_from; i < widest_end; ++i) {
      for (ValueId id : graph.nodes[i].outputs) {
        const auto at = static_cast<size_t>(id);
        const GraphValue& value = graph.value(id);
        if (value.role != Role::activation || value.storage_of != kNoValue || out[at]) continue;
        if (end[at] > begin[at] + length) length = end[at] - begin[at], longest = id;
      }
    }
    if (longest == kNoValue) break;
    out[static_cast<size_t>(longest)] = true;
  }
  return out;
}

// The chain of a forward. Values are those that own memory.
class Chain {
 public:
  Chain(const Graph& graph, const RecomputeOptions& options, const std::vector<bool>& droppable)
      : graph_(graph), options_(options), skips_(long_lived(graph)) {
    const size_t n = graph.values.size();
    stage_.assign(n, -1);
    result_.assign(n, false);
    needed_ = read_after_forward(graph);
    std::vector<ForwardCut> cuts = find_forward_cuts(graph, skips_);
    // The last of several cuts at the same value counts.
    for (size_t i = cuts.size() - 1; i-- > 0;) {
      if (cuts[i].value == cuts[i + 1].value) cuts.erase(cuts.begin() + static_cast<ptrdiff_t>(i));
    }
    const size_t joined = (cuts.size() + kMostParts - 1) / kMostParts;
    size_t begin = 0;
    for (size_t i = 0; i < cuts.size(); ++i) {
      if (i + 1 < cuts.size() && (i + 1) % joined != 0) continue;
      add_stage(begin, cuts[i], droppable);
      begin = cuts[i].after + 1;
    }
  }

  const std::vector<ChainStage>& stages() const { return stages_; }

  RecomputeSchedule schedule(const ChainSchedule& chosen) const {
    RecomputeSchedule out{.stage = stage_, .result = result_, .sweeps = {}};
    for (const ChainSweep& sweep : chosen.sweeps) {
      RecomputeSchedule::Sweep made{.last = sweep.last, .kept = {}};
      for (int s = sweep.first; s <= sweep.last; ++s) {
        const int kept = sweep.kept[static_cast<size_t>(s - sweep.first)];
        if (kept == ChainSweep::kNothing) continue;
        const Values& values = values_[static_cast<size_t>(s)];
        for (size_t i = 0; i < values.ids.size(); ++i) {
          const ValueId id = values.ids[i];
          if (id == values.result || (kept >= 0 && !values.choices[static_cast<size_t>(kept)][i])) {
            made.kept.push_back(id);
          }
        }
      }
      out.sweeps.push_back(std::move(made));
    }
    return out;
  }

 private:
  // The values of a stage that the backward reads, and its result.
  struct Values {
    std::vector<ValueId> ids;  // in order of production
    ValueId result = kNoValue;
    std::vector<std::vector<bool>> choices;  // which of these are dropped
  };

  double bytes(ValueId id) const { return static_cast<double>(graph_.value(id).spec.bytes()); }

  void add_stage(size_t begin, const ForwardCut& end, const std::vector<bool>& droppable) {
    ChainStage stage;
    Values values{.ids = {}, .result = kNoValue, .choices = {}};
    const int index = static_cast<int>(stages_.size());
    double largest = 0;
    for (size_t i = begin; i <= end.after; ++i) {
      if (graph_.nodes[i].attributes.has(kNeverAgain)) continue;
      stage.seconds += options_.seconds(graph_, graph_.nodes[i]);
      for (ValueId id : graph_.nodes[i].outputs) {
        const auto at = static_cast<size_t>(id);
        const GraphValue& value = graph_.value(id);
        if (value.role != Role::activation || value.storage_of != kNoValue) continue;
        largest = std::max(largest, bytes(id));
        if (skips_[at] || !droppable[at]) continue;
        stage_[at] = index;
        result_[at] = id == end.value;
        if (!needed_[at] && !result_[at]) continue;
        values.ids.push_back(id);
        stage.full += bytes(id);
        if (result_[at]) values.result = id, stage.result = bytes(id);
      }
    }
    stage.forward_work = work(begin, end.after);
    stage.backward_work = 2 * largest;
    find_choices(begin, stage, values);
    stages_.push_back(std::move(stage));
    values_.push_back(std::move(values));
  }

  // The largest sum of values of the nodes that are live during one of them.
  double work(size_t begin, size_t end) const {
    std::vector<size_t> last(graph_.values.size(), 0);
    for (size_t i = begin; i <= end; ++i) {
      for (ValueId id : graph_.nodes[i].inputs) {
        if (id != kNoValue) last[static_cast<size_t>(graph_.storage(id))] = i;
      }
    }
    double now = 0, most = 0;
    std::vector<ValueId> live;
    for (size_t i = begin; i <= end; ++i) {
      for (ValueId id : graph_.nodes[i].outputs) {
        if (stage_[static_cast<size_t>(id)] < 0) continue;
        live.push_back(id);
        now += bytes(id);
      }
      most = std::max(most, now);
      std::erase_if(live, [&](ValueId id) {
        if (last[static_cast<size_t>(id)] > i || result_[static_cast<size_t>(id)]) return false;
        now -= bytes(id);
        return true;
      });
    }
    return most;
  }

  // Drops one value after the other, that with the least time for its bytes first.
  void find_choices(size_t begin, ChainStage& stage, Values& values) const {
    std::vector<bool> dropped(values.ids.size(), false);
    std::vector<double> kept{stage.full}, again{0};
    values.choices = {dropped};
    while (true) {
      size_t best = values.ids.size();
      double best_rate = 0, best_seconds = 0;
      for (size_t i = 0; i < values.ids.size(); ++i) {
        if (dropped[i] || values.ids[i] == values.result) continue;
        dropped[i] = true;
        const double seconds = seconds_again(begin, values, dropped);
        dropped[i] = false;
        const double rate = (seconds - again.back()) / std::max(1.0, bytes(values.ids[i]));
        if (best == values.ids.size() || rate < best_rate) {
          best = i, best_rate = rate, best_seconds = seconds;
        }
      }
      if (best == values.ids.size()) break;
      dropped[best] = true;
      kept.push_back(kept.back() - bytes(values.ids[best]));
      again.push_back(best_seconds);
      values.choices.push_back(dropped);
    }
    // The first and the last always remain.
    const size_t all = values.choices.size();
    const size_t few = std::min(all, kMostChoices);
    std::vector<std::vector<bool>> some;
    for (size_t k = 0; k < few; ++k) {
      const size_t i = few == 1 ? 0 : k * (all - 1) / (few - 1);
      some.push_back(values.choices[i]);
      stage.choices.push_back({kept[i], again[i]});
    }
    values.choices = std::move(some);
  }

  // The seconds of the nodes from `begin` that compute the dropped values from the others.
  double seconds_again(size_t begin, const Values& values, const std::vector<bool>& dropped) const {
    std::vector<ValueId> wanted;
    std::vector<bool> there(graph_.values.size(), false);
    for (size_t i = 0; i < values.ids.size(); ++i) {
      if (dropped[i]) {
        wanted.push_back(values.ids[i]);
      } else {
        there[static_cast<size_t>(values.ids[i])] = true;
      }
    }
    double seconds = 0;
    std::vector<int> runs;
    while (!wanted.empty()) {
      const ValueId id = wanted.back();
      wanted.pop_back();
      const int producer = graph_.value(id).producer;
      if (producer < static_cast<int>(begin) || std::ranges::count(runs, producer) > 0) continue;
      runs.push_back(producer);
      const Node& node = graph_.nodes[static_cast<size_t>(producer)];
      seconds += options_.seconds(graph_, node);
      for (ValueId input : node.inputs) {
        if (input == kNoValue) continue;
        const ValueId root = graph_.storage(input);
        const auto at = static_cast<size_t>(root);
        if (stage_[at] >= 0 && !there[at]) wanted.push_back(root);
      }
    }
    return seconds;
  }

  const Graph& graph_;
  const RecomputeOptions& options_;
  std::vector<bool> skips_, needed_, result_;  // by value
  std::vector<int> stage_;                     // likewise
  std::vector<ChainStage> stages_;
  std::vector<Values> values_;
};

}  // namespace

RecomputeSchedule schedule_recomputation(const Graph& graph, const RecomputeOptions& options,
                                         const std::vector<bool>& droppable) {
  if (forward_nodes(graph) == 0) return {};
  const Chain chain(graph, options, droppable);
  const ChainPlanner planner(chain.stages(), kMemorySteps);
  const double least = planner.least();
  return chain.schedule(planner.schedule(least + options.share * (planner.most() - least)));
}

}  // namespace dltrain
