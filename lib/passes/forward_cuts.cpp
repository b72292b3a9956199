#include "passes/forward_cuts.h"

#include <algorithm>

#include "passes/recompute.h"

namespace dltrain {
namespace {

// Returns for each value the last forward node that reads its memory, or −1.
std::vector<int> last_forward_reads(const Graph& graph, size_t count) {
  std::vector<int> last(graph.values.size(), -1);
  for (size_t i = 0; i < count; ++i) {
    for (ValueId id : graph.nodes[i].inputs) {
      if (id != kNoValue) last[static_cast<size_t>(graph.storage(id))] = static_cast<int>(i);
    }
  }
  return last;
}

}  // namespace

size_t forward_nodes(const Graph& graph) {
  size_t count = 0;
  while (count < graph.nodes.size() && graph.nodes[count].phase == Phase::forward) ++count;
  return count;
}

std::vector<bool> read_after_forward(const Graph& graph) {
  std::vector<bool> read(graph.values.size(), false);
  for (size_t i = forward_nodes(graph); i < graph.nodes.size(); ++i) {
    for (ValueId id : graph.nodes[i].inputs) {
      if (id != kNoValue) read[static_cast<size_t>(graph.storage(id))] = true;
    }
  }
  return read;
}

std::vector<ForwardCut> find_forward_cuts(const Graph& graph, const std::vector<bool>& kept) {
  const size_t count = forward_nodes(graph);
  const std::vector<int> last = last_forward_reads(graph, count);
  const std::vector<bool> needed = read_after_forward(graph);
  std::vector<ForwardCut> cuts;
  std::vector<ValueId> alive;
  double bytes = 0;
  const auto never_again = [&](size_t i) { return graph.nodes[i].attributes.has(kNeverAgain); };
  for (size_t i = 0; i < count; ++i) {
    for (ValueId id : graph.nodes[i].outputs) {
      const GraphValue& value = graph.value(id);
      if (value.role != Role::activation || value.storage_of != kNoValue) continue;
      if (needed[static_cast<size_t>(id)]) bytes += static_cast<double>(value.spec.bytes());
      if (kept.empty() || !kept[static_cast<size_t>(id)]) alive.push_back(id);
    }
    std::erase_if(alive,
                  [&](ValueId id) { return last[static_cast<size_t>(id)] <= static_cast<int>(i); });
    if (alive.size() == 1 && i + 1 < count && !(never_again(i) && never_again(i + 1))) {
      const ValueId id = alive.front();
      cuts.push_back({i, id, static_cast<double>(graph.value(id).spec.bytes()), bytes});
    }
  }
  cuts.push_back({.after = count - 1, .kept = bytes});
  return cuts;
}

}  // namespace dltrain
