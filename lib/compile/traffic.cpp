#include "compile/traffic.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace dltrain {
namespace {

// Returns the message that a node begins; zero bytes for other nodes.
Traffic message(const Graph& graph, const Node& node, const RankPlaces& places) {
  Traffic out;
  if (!node.op->name.ends_with("_begin")) return out;
  const std::vector<int> group = places.mesh.group(places.rank, node.attributes.text(kOver));
  const auto bytes = [&](const std::vector<ValueId>& ids) {
    size_t sum = 0;
    for (ValueId id : ids) sum += graph.value(id).spec.bytes();
    return sum;
  };
  const size_t parts = group.size();
  if (node.op->name == "all_reduce_begin") out.reduced = bytes(node.inputs);
  if (node.op->name == "reduce_scatter_begin") out.scattered = parts * bytes(node.outputs);
  if (node.op->name == "all_gather_begin") out.gathered = parts * bytes({node.inputs.front()});
  // Every other rank of the group gets the same number of bytes.
  const double each = (2.0 * static_cast<double>(out.reduced) + static_cast<double>(out.scattered) +
                       static_cast<double>(out.gathered)) /
                      static_cast<double>(parts);
  for (int rank : group) {
    if (rank == places.rank) continue;
    const bool here = rank / places.per_node == places.rank / places.per_node;
    (here ? out.within_node : out.between_nodes) += each;
  }
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

Traffic step_traffic(const Graph& graph, int64_t micro_steps, const RankPlaces& places) {
  Traffic sum;
  each_run(graph, micro_steps, [&](const Node& node) {
    const Traffic one = message(graph, node, places);
    sum.reduced += one.reduced;
    sum.scattered += one.scattered;
    sum.gathered += one.gathered;
    sum.within_node += one.within_node;
    sum.between_nodes += one.between_nodes;
  });
  return sum;
}

StepEstimate estimate_step(const Graph& graph, int64_t micro_steps, const RankPlaces& places,
                           const Rates& rates) {
  StepEstimate out;
  const double node_link = rates.node_link > 0 ? rates.node_link : rates.link;
  double now = 0;
  std::map<std::string, double> free_at;  // by group
  std::vector<double> arrives(static_cast<size_t>(graph.next_slot()));
  each_run(graph, micro_steps, [&](const Node& node) {
    const auto slot = static_cast<size_t>(node.attributes.integer("slot"));
    if (node.op->name.ends_with("_begin")) {
      const Traffic sent = message(graph, node, places);
      const double seconds =
          std::max(sent.within_node / rates.link, sent.between_nodes / node_link);
      double& free = free_at[node.attributes.text(kOver)];
      arrives[slot] = free = std::max(free, now) + seconds;
      out.communication += seconds;
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
