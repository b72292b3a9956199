#include "passes/tensor_sums.h"

#include <algorithm>

#include "passes/partition.h"
#include "passes/zero_parts.h"

namespace dltrain {

void TensorSums::add_up(Node& node) {
  Graph& graph = builder_.graph();
  const auto is_read = [&](const auto& sums) {
    return std::ranges::any_of(node.inputs, [&](ValueId id) {
      return std::ranges::find(sums.second, id) != sums.second.end();
    });
  };
  if (std::ranges::any_of(open_, is_read)) {
    for (const auto& [axes, sums] : std::exchange(open_, {})) {
      graph.groups.push_back(adjacent(graph, sums));
      const auto made = emit_all_reduce(builder_, sums, mesh_.over(axes), slot_++);
      for (size_t i = 0; i < sums.size(); ++i) results_[sums[i]] = made[i];
    }
  }
  replace_inputs(node, results_);
}

void TensorSums::note(const Node& node, const std::string& axes) {
  if (node.op->update != UpdateKind::sums || axes.empty()) return;
  for (ValueId id : node.outputs) {
    if (builder_.graph().value(id).storage_of == kNoValue) open_[axes].push_back(id);
  }
}

std::string cut_axis(const GraphValue& parameter) {
  return parameter.shard && parameter.shard->cut ? parameter.shard->cut->axis : "";
}

}  // namespace dltrain
