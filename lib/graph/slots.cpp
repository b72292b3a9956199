#include "graph/slots.h"

#include <algorithm>
#include <map>
#include <span>

#include "base/error.h"

namespace dltrain {
namespace {

class SlotVerifier {
 public:
  explicit SlotVerifier(const Graph& graph) : graph_(graph) {}

  void run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      find(i);
      find_writes(i);
    }
    for (const auto& [slot, pair] : pairs_) {
      check_internal(pair.end > pair.begin, "{}: slot {} has no end", where(pair.begin), slot);
      check_pair(pair);
      check_between(pair);
    }
    check_readers();
  }

 private:
  struct Pair {
    size_t begin = 0, end = 0;
  };

  std::string where(size_t index) const {
    const Node& node = graph_.nodes[index];
    return fmt::format("node {} {} ({})", index, node.op->name, node.layer);
  }

  void find(size_t i) {
    const Node& node = graph_.nodes[i];
    if (node.op->slot == SlotUse::none) return;
    const int64_t slot = node.attributes.integer("slot", -1);
    check_internal(slot >= 0, "{}: has no slot", where(i));
    if (begins_slot(node)) {
      check_internal(pairs_.try_emplace(slot, Pair{i, 0}).second, "{}: begins slot {} again",
                     where(i), slot);
      for (ValueId id : node.outputs) begun_[id] = slot;
      return;
    }
    const auto pair = pairs_.find(slot);
    check_internal(pair != pairs_.end() && pair->second.end == 0,
                   "{}: ends slot {}, which has not begun", where(i), slot);
    pair->second.end = i;
  }

  static bool once_per_step(const Node& node) {
    return node.once_per_step || node.phase == Phase::update;
  }

  void check_pair(const Pair& pair) const {
    const Node &begin = graph_.nodes[pair.begin], &end = graph_.nodes[pair.end];
    check_internal(begin.op->message == end.op->message, "{}: ends {}", where(pair.end),
                   where(pair.begin));
    check_internal(begin.attributes.text(kOver) == end.attributes.text(kOver),
                   "{}: not the group of ranks of {}", where(pair.end), where(pair.begin));
    check_internal(once_per_step(begin) == once_per_step(end), "{}: does not run as often as {}",
                   where(pair.end), where(pair.begin));
    const size_t given = begin.outputs.size();
    check_internal(end.inputs.size() >= given &&
                       std::equal(begin.outputs.begin(), begin.outputs.end(), end.inputs.begin()),
                   "{}: does not read the outputs of {}", where(pair.end), where(pair.begin));
  }

  void check_between(const Pair& pair) {
    const Node &begin = graph_.nodes[pair.begin], &end = graph_.nodes[pair.end];
    const auto is_of = [&](const std::vector<ValueId>& ids, ValueId root) {
      return std::any_of(ids.begin(), ids.end(),
                         [&](ValueId id) { return id != kNoValue && graph_.storage(id) == root; });
    };
    for (ValueId id : begin.inputs) {
      const ValueId root = graph_.storage(id);
      if (is_of(begin.outputs, root)) continue;  // in place: only the end can read it
      check_internal(rules_of(graph_.value(root).role).persistent || is_of(end.inputs, root),
                     "{}: input {} does not live until {}", where(pair.begin),
                     graph_.value(id).name, where(pair.end));
      const std::vector<size_t>& writers = writers_[root];
      const auto next = std::ranges::upper_bound(writers, pair.begin);
      if (next == writers.end() || *next >= pair.end) continue;
      check_internal(false, "{}: writes an input of {} before its end", where(*next),
                     where(pair.begin));
    }
  }

  void find_writes(size_t i) {
    const Node& node = graph_.nodes[i];
    for (ValueId id : node.outputs) {
      const ValueId root = graph_.storage(id);
      if (id == root || node.op->has_effect || graph_.continues_sum(id))
        writers_[root].push_back(i);
    }
  }

  void check_readers() const {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      for (ValueId id : graph_.nodes[i].inputs) {
        const auto given = begun_.find(id);
        if (given == begun_.end() || pairs_.at(given->second).end == i) continue;
        check_internal(false, "{}: reads %{} of slot {} before its end", where(i), id,
                       given->second);
      }
    }
  }

  const Graph& graph_;
  std::map<int64_t, Pair> pairs_;                   // by slot; end 0: none yet
  std::map<ValueId, int64_t> begun_;                // output of a begin, and its slot
  std::map<ValueId, std::vector<size_t>> writers_;  // nodes that write a storage, in order
};

}  // namespace

void verify_slots(const Graph& graph) {
  SlotVerifier(graph).run();
}

bool begins_slot(const Node& node) {
  return node.op->slot == SlotUse::begins;
}

namespace {

// Returns the nodes from `begin` on, which is one of them.
std::span<const Node> nodes_from(const Graph& graph, const Node& begin) {
  return std::span(graph.nodes).subspan(static_cast<size_t>(&begin - graph.nodes.data()));
}

// Returns the layer that made what is sent, or that reads what is received.
const std::string& layer_of_message(const Graph& graph, const Node& begin) {
  if (begin.op->message == MessageKind::send) {
    if (const Node* sent = graph.producer_of(begin.inputs[0])) return sent->layer;
  } else if (begin.op->message == MessageKind::receive) {
    ValueId received = begin.outputs[0];
    for (const Node& node : nodes_from(graph, begin)) {
      if (std::ranges::find(node.inputs, received) == node.inputs.end()) continue;
      if (node.op->message != MessageKind::receive) return node.layer;
      received = node.outputs[0];
    }
  }
  return begin.layer;
}

}  // namespace

std::string subject_of(const Graph& graph, const Node& begin, const Mesh& mesh) {
  const std::string axes = mesh.keys(begin.attributes.text(kOver));
  const std::string along = axes.empty() ? "" : "axis " + axes;
  const auto join = [&](const std::string& what) {
    return what + (what.empty() || along.empty() ? "" : ", ") + along;
  };
  if (begin.op->message == MessageKind::all_to_all)
    return join("rows of experts of " + begin.layer);
  std::span<const ValueId> tensors = begin.inputs;
  if (begin.op->message == MessageKind::all_gather) {
    // The first is a part of a unit, whose name is internal. The tensors of the unit are the other
    // inputs, or the outputs of the end.
    tensors = tensors.subspan(1);
    const int64_t slot = begin.attributes.integer("slot", -1);
    const auto ends = [&](const Node& node) {
      return node.op->slot == SlotUse::ends && node.attributes.integer("slot", -1) == slot;
    };
    if (tensors.empty()) {
      const auto nodes = nodes_from(graph, begin);
      const auto end = std::ranges::find_if(nodes, ends);
      if (end != nodes.end()) tensors = end->outputs;
    }
  }
  std::string first;
  size_t named = 0;
  for (ValueId id : tensors) {
    const std::string& name = graph.value(id).name;
    if (name.empty()) continue;
    if (++named == 1) first = name;
  }
  if (named == 0) first = layer_of_message(graph, begin);
  if (named > 1) first += fmt::format(" and {} more", named - 1);
  return join(first);
}

}  // namespace dltrain
