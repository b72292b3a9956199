#include "compile/traffic.h"

#include <algorithm>
#include <vector>

namespace dltrain {
namespace {

// The message that a node begins; nothing for others.
Traffic message(const Graph& graph, const Node& node, int ranks) {
  Traffic out;
  const auto bytes = [&](const std::vector<ValueId>& ids) {
    size_t sum = 0;
    for (ValueId id : ids) sum += graph.value(id).spec.bytes();
    return sum;
  };
  const auto parts = static_cast<size_t>(ranks);
  if (node.op->name == "all_reduce_begin") out.reduced = bytes(node.inputs);
  if (node.op->name == "reduce_scatter_begin") out.scattered = parts * bytes(node.outputs);
  if (node.op->name == "all_gather_begin") out.gathered = parts * bytes({node.inputs.front()});
  return out;
}

// Calls visit(node) for the nodes of a whole step, in order.
template <typename Visit>
void each_run(const Graph& graph, int64_t micro_steps, const Visit& visit) {
  const auto pass = [&](bool update, bool last) {
    for (const Node& node : graph.nodes) {
      if ((node.phase == Phase::update) == update && (last || !node.once_a_step)) visit(node);
    }
  };
  for (int64_t a = 0; a < micro_steps; ++a) pass(false, a + 1 == micro_steps);
  pass(true, true);
}

}  // namespace

double Traffic::sent(int ranks) const {
  const double whole = 2.0 * static_cast<double>(reduced) + static_cast<double>(scattered) +
                       static_cast<double>(gathered);
  return whole * (ranks - 1) / ranks;
}

Traffic step_traffic(const Graph& graph, int64_t micro_steps, int ranks) {
  Traffic sum;
  each_run(graph, micro_steps, [&](const Node& node) {
    const Traffic one = message(graph, node, ranks);
    sum.reduced += one.reduced;
    sum.scattered += one.scattered;
    sum.gathered += one.gathered;
  });
  return sum;
}

StepEstimate estimate_step(const Graph& graph, int64_t micro_steps, int ranks, const Rates& rates) {
  StepEstimate out;
  double now = 0, link_free = 0;
  std::vector<double> arrives(static_cast<size_t>(graph.next_slot()));
  each_run(graph, micro_steps, [&](const Node& node) {
    const double sent = message(graph, node, ranks).sent(ranks);
    const auto slot = static_cast<size_t>(node.attributes.integer("slot"));
    if (node.op->name.ends_with("_begin")) {
      link_free = std::max(link_free, now) + sent / rates.link;
      arrives[slot] = link_free;
      out.communication += sent / rates.link;
    } else if (node.op->name.ends_with("_end")) {
      out.exposed += std::max(0.0, arrives[slot] - now);
      now = std::max(now, arrives[slot]);
    } else {
      const SpecList inputs = graph.input_specs(node), outputs = graph.output_specs(node);
      const double seconds =
          op_cost(*node.op, inputs, outputs, node.attributes).flops / rates.flops;
      now += seconds;
      out.compute += seconds;
    }
  });
  return out;
}

}  // namespace dltrain
