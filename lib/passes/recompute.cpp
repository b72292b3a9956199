#include "passes/recompute.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "config/name_patterns.h"
#include "ops/rules.h"
#include "passes/verify_pass.h"

namespace dltrain {
namespace {

// Returns true if the node writes only activations and so can be recomputed.
bool repeatable(const Graph& graph, const Node& node) {
  if (node.attributes.has(kAlwaysAgain)) return true;
  if (node.op->has_effect || node.once_per_step || node.attributes.has(kNeverAgain)) return false;
  return std::ranges::all_of(node.outputs,
                             [&](ValueId id) { return graph.value(id).role == Role::activation; });
}

class Rewriting {
 public:
  Rewriting(Graph graph, const RecomputeOptions& options)
      : graph_(std::move(graph)), options_(options) {
    drop_.assign(graph_.values.size(), false);
    if (options.mode == Recompute::selective) {
      drop_cheap();
    } else if (options.mode == Recompute::automatic) {
      drop_by_schedule();
    } else if (options.mode != Recompute::none) {
      drop_within(recomputed_pieces(graph_, options.mode));
    }
    for (const Node& node : graph_.nodes) {
      if (node.phase == Phase::forward && selects(options.again, node.layer) &&
          repeatable(graph_, node)) {
        for (ValueId id : node.outputs) drop_[static_cast<size_t>(id)] = true;
      } else if (selects(options.keep, node.layer)) {
        for (ValueId id : node.outputs) drop_[static_cast<size_t>(id)] = false;
      }
      if (node.attributes.has(kAlwaysAgain)) {
        for (ValueId id : node.outputs) drop_[static_cast<size_t>(id)] = true;
      } else if (node.op->slot == SlotUse::ends && node.phase != Phase::update) {
        // A tensor stays as it is while it is sent.
        for (ValueId id : node.inputs) drop_[static_cast<size_t>(id)] = false;
      }
    }
    next_slot_ = graph_.next_slot();
    old_ = std::exchange(graph_.nodes, {});
  }

  Recomputed run() {
    again_.assign(graph_.values.size(), kNoValue);
    for (const Node& node : old_) {
      Node copy = node;
      if (node.phase == Phase::backward) {
        advance(node);
        for (ValueId& id : copy.inputs) id = recomputed(id);
        // A view shares the memory of its input.
        for (ValueId id : copy.outputs) {
          ValueId& base = graph_.value(id).storage_of;
          if (base != kNoValue) base = recomputed(base);
        }
      }
      graph_.nodes.push_back(std::move(copy));
    }
    graph_.update_producers();
    verify_pass(graph_);
    out_.graph = std::move(graph_);
    return std::move(out_);
  }

 private:
  void drop_cheap() {
    for (const Node& node : graph_.nodes) {
      if (node.phase != Phase::forward || !repeatable(graph_, node)) continue;
      if (is_product(*node.op)) continue;
      for (ValueId id : node.outputs) drop_[static_cast<size_t>(id)] = true;
    }
  }

  // Drops the values that no node of another piece reads.
  void drop_within(const std::vector<int>& pieces) {
    std::vector<int> home(graph_.values.size(), -1);
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (pieces[i] < 0 || !repeatable(graph_, graph_.nodes[i])) continue;
      for (ValueId id : graph_.nodes[i].outputs) {
        home[static_cast<size_t>(id)] = pieces[i];
        drop_[static_cast<size_t>(id)] = true;
      }
    }
    for (size_t i = 0; i < pieces.size(); ++i) {
      for (ValueId id : graph_.nodes[i].inputs) {
        if (id != kNoValue && home[static_cast<size_t>(id)] != pieces[i]) {
          drop_[static_cast<size_t>(id)] = false;
        }
      }
    }
  }

  void drop_by_schedule() {
    std::vector<bool> droppable(graph_.values.size(), false);
    for (const Node& node : graph_.nodes) {
      if (node.phase != Phase::forward || !repeatable(graph_, node)) continue;
      // A value that is repeated whenever it is read has no place in a schedule.
      if (selects(options_.keep, node.layer) || node.attributes.has(kAlwaysAgain)) continue;
      for (ValueId id : node.outputs) droppable[static_cast<size_t>(id)] = true;
    }
    // A value whose memory a node writes that is not repeated, such as a sum over ranks in place.
    for (const Node& node : graph_.nodes) {
      if (node.phase != Phase::forward || repeatable(graph_, node)) continue;
      if (node.attributes.has(kNeverAgain)) continue;  // reads it only
      for (ValueId id : node.outputs) droppable[static_cast<size_t>(graph_.storage(id))] = false;
    }
    schedule_ = schedule_recomputation(graph_, options_, droppable);
    if (schedule_.sweeps.empty()) return;
    stage_ = schedule_.sweeps.front().last + 1;
    std::vector<bool> kept(drop_.size(), false);
    for (ValueId id : schedule_.sweeps.front().kept) kept[static_cast<size_t>(id)] = true;
    read_in_.assign(drop_.size(), -1);
    for (size_t id = 0; id < drop_.size(); ++id) {
      const auto root = static_cast<size_t>(graph_.storage(static_cast<ValueId>(id)));
      if (schedule_.stage[root] < 0) continue;
      // The backward of the next stage comes first.
      read_in_[id] = schedule_.stage[root] + (schedule_.result[root] ? 1 : 0);
      const Node* producer = graph_.producer_of(static_cast<ValueId>(id));
      drop_[id] = producer != nullptr && !kept[root] && producer->phase == Phase::forward;
    }
  }

  // Begins the backward of the stage whose values the node reads, if it is an earlier one.
  void advance(const Node& node) {
    if (schedule_.sweeps.empty()) return;
    int reads = -1;
    for (ValueId id : node.inputs) {
      if (id != kNoValue) reads = std::max(reads, read_in_[static_cast<size_t>(id)]);
    }
    while (reads >= 0 && stage_ > reads) {
      --stage_;
      for (ValueId id : temporary_) again_[static_cast<size_t>(id)] = kNoValue;
      temporary_.clear();
      const auto sweep = std::find_if(schedule_.sweeps.begin() + 1, schedule_.sweeps.end(),
                                      [&](const auto& s) { return s.last == stage_; });
      if (sweep == schedule_.sweeps.end()) continue;
      for (ValueId id : sweep->kept) recomputed(id);
      for (ValueId id : sweep->kept) std::erase(temporary_, id);
    }
  }

  // Returns the value that the backward reads instead of a forward value.
  ValueId recomputed(ValueId id) {
    if (id == kNoValue || static_cast<size_t>(id) >= drop_.size() ||
        !drop_[static_cast<size_t>(id)]) {
      return id;
    }
    if (again_[static_cast<size_t>(id)] == kNoValue) {
      run_again(old_[static_cast<size_t>(graph_.value(id).producer)]);
    }
    return again_[static_cast<size_t>(id)];
  }

  // A message that has been received is sent again before it is received again.
  void forget_begin(const Node& end) {
    if (!received_.contains(end.attributes.integer("slot"))) return;
    for (ValueId id : end.inputs) {
      const int producer = id == kNoValue ? -1 : graph_.value(id).producer;
      if (producer < 0 || old_[static_cast<size_t>(producer)].op->slot != SlotUse::begins) continue;
      again_[static_cast<size_t>(id)] = kNoValue;
      std::erase(temporary_, id);
    }
  }

  void run_again(const Node& node) {
    if (node.op->slot == SlotUse::ends) forget_begin(node);
    Node copy = node;
    copy.phase = Phase::backward;
    for (ValueId& id : copy.inputs) id = recomputed(id);
    if (node.op->slot != SlotUse::none) copy.attributes.set("slot", slot_again(node));
    for (ValueId& id : copy.outputs) {
      const GraphValue value = graph_.value(id);
      GraphValue made{.spec = value.spec, .role = value.role};
      if (value.storage_of != kNoValue) made.storage_of = recomputed(value.storage_of);
      const ValueId fresh = graph_.add(std::move(made));
      if (ValueId& there = again_[static_cast<size_t>(id)]; there == kNoValue) {
        there = fresh;
        temporary_.push_back(id);
      }
      id = fresh;
    }
    ++out_.nodes;
    if (options_.seconds) out_.seconds += options_.seconds(graph_, copy);
    out_.flops += graph_.cost(copy).flops;
    graph_.nodes.push_back(std::move(copy));
  }

  // The slot of a message that is sent again, another one each time.
  int64_t slot_again(const Node& node) {
    const int64_t old = node.attributes.integer("slot");
    if (node.op->slot == SlotUse::ends) {
      received_.insert(old);
    } else if (received_.erase(old) > 0) {
      slots_.erase(old);
    }
    const auto [slot, first] = slots_.try_emplace(old, next_slot_);
    if (first) ++next_slot_;
    return slot->second;
  }

  Graph graph_;
  const RecomputeOptions& options_;
  std::vector<Node> old_;
  int64_t next_slot_ = 0;
  std::map<int64_t, int64_t> slots_;  // of messages of the forward: those in the backward
  std::set<int64_t> received_;        // of these, by the slot in the forward
  std::vector<bool> drop_;            // by value of the input graph
  std::vector<ValueId> again_;        // likewise: its copy in the backward
  // For `automatic`: the stage whose backward runs, and values that are recomputed for it alone.
  RecomputeSchedule schedule_;
  int stage_ = 0;
  // By value of the input graph: the first stage whose backward reads it.
  std::vector<int> read_in_;
  std::vector<ValueId> temporary_;
  Recomputed out_;
};

}  // namespace

Recomputed recompute(Graph graph, const RecomputeOptions& options) {
  const auto always = [](const Node& node) { return node.attributes.has(kAlwaysAgain); };
  if (options.mode == Recompute::none && options.again.empty() &&
      std::ranges::none_of(graph.nodes, always)) {
    return {.graph = std::move(graph)};
  }
  if (options.mode == Recompute::blocks &&
      std::ranges::none_of(graph.nodes, [](const Node& node) { return node.block >= 0; })) {
    fail(ExitCode::usage,
         "memory.recompute: blocks runs the copies of a `repeat` again, and the model has none; "
         "selective and full need none");
  }
  return Rewriting(std::move(graph), options).run();
}

}  // namespace dltrain
