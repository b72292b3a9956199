#include "passes/token_axis.h"

#include <algorithm>

#include "base/error.h"

namespace dltrain {

std::vector<int> token_axes(const Graph& graph, ValueId tokens) {
  std::vector<int> all(graph.values.size(), kNoTokenAxis);
  all[static_cast<size_t>(tokens)] = 1;
  for (const Node& node : graph.nodes) {
    std::vector<int> axes;
    for (ValueId id : node.inputs) {
      axes.push_back(id == kNoValue ? kNoTokenAxis : all[static_cast<size_t>(id)]);
    }
    const auto has_tokens = [](int input) { return input != kNoTokenAxis; };
    int axis = node.op->makes_tokens ? 1 : kNoTokenAxis;
    if (!node.op->makes_tokens && std::ranges::any_of(axes, has_tokens)) {
      const SpecList inputs = graph.input_specs(node), outputs = graph.output_specs(node);
      const auto rule = node.op->token_axis;
      axis = rule == nullptr ? kMixesTokens
                             : rule({inputs, outputs, node.attributes, std::move(axes)});
    }
    if (axis == kMixesTokens) {
      throw Error(ExitCode::usage,
                  fmt::format("{} mixes tokens, so this model cannot generate text", node.op->name),
                  node.layer);
    }
    for (ValueId id : node.outputs) {
      const bool counts = axis != kNoTokenAxis && axis < graph.value(id).spec.shape.rank();
      all[static_cast<size_t>(id)] = counts ? axis : kNoTokenAxis;
    }
  }
  return all;
}

}  // namespace dltrain
