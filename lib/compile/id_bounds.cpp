#include "compile/id_bounds.h"

#include <algorithm>

#include "base/error.h"

namespace dltrain {
namespace {

constexpr std::string_view kMoves[] = {"reshape", "slice", "transpose", "concat", "broadcast"};

// Returns the slots that `ids` depend on.
std::vector<size_t> sources(const Graph& graph, ValueId ids, const std::vector<ValueId>& slots,
                            const std::string& layer) {
  std::vector<size_t> out;
  std::vector<ValueId> rest{ids};
  while (!rest.empty()) {
    const ValueId id = rest.back();
    rest.pop_back();
    const auto slot = std::ranges::find(slots, id);
    if (slot != slots.end()) {
      out.push_back(static_cast<size_t>(slot - slots.begin()));
      continue;
    }
    const Node* node = graph.producer_of(id);
    if (node != nullptr && node->op->name == "token_positions") continue;  // bounded by themselves
    if (node == nullptr || std::ranges::find(kMoves, node->op->name) == std::end(kMoves)) {
      throw Error(ExitCode::usage, "the ids of an embedding must come from an integer input",
                  layer);
    }
    rest.insert(rest.end(), node->inputs.begin(), node->inputs.end());
  }
  return out;
}

}  // namespace

std::vector<IdBound> id_bounds(const Graph& graph, const std::vector<ValueId>& slots) {
  std::vector<IdBound> out;
  for (const Node& node : graph.nodes) {
    if (node.op->name != "embedding") continue;
    const int64_t rows =
        node.attributes.integer("all_rows", graph.value(node.inputs[1]).spec.shape[0]);
    for (size_t slot : sources(graph, node.inputs[0], slots, node.layer)) {
      const auto known = std::ranges::find(out, slot, &IdBound::slot);
      if (known == out.end()) {
        out.push_back({slot, rows, node.layer});
      } else if (rows < known->bound) {
        *known = {slot, rows, node.layer};
      }
    }
  }
  return out;
}

}  // namespace dltrain
