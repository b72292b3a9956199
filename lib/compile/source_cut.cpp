#include "compile/source_cut.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "graph/dependence.h"

namespace dltrain {
namespace {

ValueId add_state(GraphBuilder& builder, ValueId value, size_t number, const SourceCut& cut) {
  const TensorSpec spec = builder.spec(value);
  const int64_t samples = spec.shape[0];
  return builder.add_value(fmt::format("cache.source.{}", number),
                           {Shape{cut.slots, spec.shape.elements() / samples}, spec.dtype},
                           Role::cache);
}

}  // namespace

std::vector<ValueId> values_of_source(const Graph& graph, const SourceCut& cut) {
  const std::vector<bool> source = reachable_from(graph, cut.sources),
                          text = reachable_from(graph, {&cut.tokens, 1});
  std::set<ValueId> found;
  for (const Node& node : graph.nodes) {
    if (!text[static_cast<size_t>(node.outputs[0])]) continue;
    for (ValueId id : node.inputs) {
      if (id == kNoValue || text[static_cast<size_t>(id)] || !source[static_cast<size_t>(id)] ||
          graph.value(id).producer < 0) {
        continue;
      }
      if (!is_floating(graph.value(id).spec.dtype)) {
        throw Error(ExitCode::usage,
                    "reads integers computed from the source, so this model cannot generate text",
                    node.layer);
      }
      found.insert(id);
    }
  }
  return {found.begin(), found.end()};
}

void read_from_slots(GraphBuilder& builder, std::span<const ValueId> values, const SourceCut& cut,
                     bool in_order) {
  Graph& graph = builder.graph();
  const size_t nodes = graph.nodes.size();
  std::vector<ValueId> kept;
  for (size_t i = 0; i < values.size(); ++i) {
    ValueId row = add_state(builder, values[i], i, cut);
    // A slot without a token of this step reads zeros.
    if (!in_order) row = builder.emit1("slot_state", {row, cut.counts, cut.slot_ids});
    kept.push_back(builder.reshape(row, builder.spec(values[i]).shape));
  }
  for (size_t n = 0; n < nodes; ++n) {
    for (ValueId& id : graph.nodes[n].inputs) {
      const auto at = std::ranges::find(values, id);
      if (at != values.end()) id = kept[static_cast<size_t>(at - values.begin())];
    }
  }
  // Move the new nodes before all their readers.
  std::rotate(graph.nodes.begin(), graph.nodes.begin() + static_cast<std::ptrdiff_t>(nodes),
              graph.nodes.end());
  graph.update_producers();
}

void write_to_slots(GraphBuilder& builder, std::span<const ValueId> values, const SourceCut& cut) {
  for (size_t i = 0; i < values.size(); ++i) {
    const ValueId state = add_state(builder, values[i], i, cut);
    // slot_state_update takes [samples, tokens, …]: treat the row as one token.
    const ValueId row = builder.reshape(values[i], {1, 1, builder.spec(state).shape[1]});
    builder.emit("slot_state_update", {state, row, cut.counts, cut.slot_ids});
  }
}

}  // namespace dltrain
