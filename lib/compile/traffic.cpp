#include "compile/traffic.h"

#include <algorithm>
#include <map>

#include "compile/cost_model.h"
#include "graph/slots.h"

namespace dltrain {
namespace {

// The messages of a graph's nodes.
class Messages {
 public:
  Messages(const Graph& graph, const RankTopology& topology) : graph_(graph), topology_(topology) {}

  // Returns the message that a node begins; zero bytes for other nodes.
  Traffic operator()(const Node& node) {
    Traffic out;
    if (!begins_slot(node)) return out;
    const std::vector<int>& group = group_over(node.attributes.text(kOver));
    const auto bytes = [&](const std::vector<ValueId>& ids) {
      size_t sum = 0;
      for (ValueId id : ids) sum += graph_.value(id).spec.bytes();
      return sum;
    };
    const size_t parts = group.size();
    if (node.op->message == MessageKind::all_reduce) out.reduced = bytes(node.inputs);
    if (node.op->message == MessageKind::reduce_scatter)
      out.scattered = parts * bytes(node.outputs);
    if (node.op->message == MessageKind::all_gather)
      out.gathered = parts * bytes({node.inputs.front()});
    if (node.op->message == MessageKind::all_to_all) {
      out.exchanged = bytes({node.inputs.front()});
    }
    const auto add = [&](int rank, double sent) {
      const bool here = rank / topology_.per_node == topology_.rank / topology_.per_node;
      (here ? out.within_node : out.between_nodes) += sent;
    };
    if (node.op->message == MessageKind::send || node.op->message == MessageKind::receive) {
      const bool sends = node.op->message == MessageKind::send;
      out.passed_on = bytes(sends ? node.inputs : node.outputs);
      add(group[static_cast<size_t>(node.attributes.integer("peer"))],
          static_cast<double>(out.passed_on));
      return out;
    }
    // Every other rank of the group gets the same number of bytes.
    const double each =
        (2.0 * static_cast<double>(out.reduced) + static_cast<double>(out.scattered) +
         static_cast<double>(out.gathered) + static_cast<double>(out.exchanged)) /
        static_cast<double>(parts);
    for (int rank : group) {
      if (rank != topology_.rank) add(rank, each);
    }
    return out;
  }

 private:
  const std::vector<int>& group_over(const std::string& axes) {
    const auto [at, is_new] = groups_.try_emplace(axes);
    if (is_new) at->second = topology_.mesh.group(topology_.rank, axes);
    return at->second;
  }

  const Graph& graph_;
  const RankTopology& topology_;
  std::map<std::string, std::vector<int>> groups_;
};

// Calls visit(node, micro_batch) for the nodes of a whole step, in order; 0 in the update.
template <typename SampleVisit>
void each_run(const Graph& graph, int64_t micro_steps, const SampleVisit& visit) {
  const auto pass = [&](bool update, int64_t micro_batch, bool last) {
    for (const Node& node : graph.nodes) {
      if ((node.phase == Phase::update) == update && (last || !node.once_per_step)) {
        visit(node, micro_batch);
      }
    }
  };
  for (int64_t a = 0; a < micro_steps; ++a) pass(false, a, a + 1 == micro_steps);
  pass(true, 0, true);
}

// The calls of a step, added up by name.
class CallSums {
 public:
  void add(const std::string& name, const KernelCost& cost, int64_t count) {
    Sum& sum = sums_[name];
    const auto times = static_cast<double>(count);
    sum.total.count += count;
    sum.total.seconds += times * cost.seconds;
    sum.total.bytes += times * cost.bytes;
    sum.total.flops += times * cost.flops;
    sum.by_limit[cost.limit] += times * cost.seconds;
  }
  std::vector<CallSum> sorted() const {
    std::vector<CallSum> out;
    for (const auto& [name, sum] : sums_) {
      const auto most =
          std::ranges::max_element(sum.by_limit, {}, [](auto& x) { return x.second; });
      out.push_back(sum.total);
      out.back().name = name;
      out.back().limit = most->first;
    }
    std::ranges::stable_sort(out, std::greater{}, &CallSum::seconds);
    return out;
  }

 private:
  struct Sum {
    CallSum total;
    std::map<std::string_view, double> by_limit;
  };
  std::map<std::string, Sum> sums_;
};

}  // namespace

Traffic step_traffic(const Graph& graph, int64_t micro_steps, const RankTopology& topology) {
  Traffic sum;
  Messages messages(graph, topology);
  for (const Node& node : graph.nodes) {
    if (node.op->message == MessageKind::receive) continue;
    const Traffic one = messages(node);
    const bool once = node.phase == Phase::update || node.once_per_step;
    const size_t runs = once ? 1 : static_cast<size_t>(micro_steps);
    sum.reduced += runs * one.reduced;
    sum.scattered += runs * one.scattered;
    sum.gathered += runs * one.gathered;
    sum.exchanged += runs * one.exchanged;
    sum.passed_on += runs * one.passed_on;
    sum.within_node += static_cast<double>(runs) * one.within_node;
    sum.between_nodes += static_cast<double>(runs) * one.between_nodes;
  }
  return sum;
}

StageTimes StepEstimate::times(StepSchedule schedule) const {
  StageTimes out{std::move(schedule), {}};
  for (const ScheduledSegment& segment : out.schedule) {
    const auto chunk = static_cast<size_t>(segment.chunk);
    const auto index = static_cast<size_t>(segment.micro_batch);
    const bool is_forward = segment.segment == Phase::forward;
    out.seconds.push_back(segment.segment == Phase::update    ? update
                          : is_forward                        ? forward[chunk][index]
                          : segment.segment == Phase::weights ? weights[chunk][index]
                                                              : backward[chunk][index]);
    out.delays.push_back(is_forward ? received[chunk] : 0);
  }
  return out;
}

StepEstimate estimate_step(const Graph& graph, int64_t micro_steps, const RankTopology& topology,
                           const MachineRates& rates,
                           const std::function<void(const EstimatedEvent&)>& seen) {
  StepEstimate out;
  const double node_link = rates.node_link > 0 ? rates.node_link : rates.link;
  int chunks = 1;
  for (const Node& node : graph.nodes) chunks = std::max(chunks, node.chunk + 1);
  const std::vector<double> none(static_cast<size_t>(micro_steps));
  out.forward.resize(static_cast<size_t>(chunks), none);
  out.backward.resize(static_cast<size_t>(chunks), none);
  out.weights.resize(static_cast<size_t>(chunks), none);
  out.received.resize(static_cast<size_t>(chunks));
  double now = 0, begin = 0;              // `begin`: of the segment
  double* segment = &out.forward[0][0];   // its seconds
  std::map<std::string, double> free_at;  // by group
  std::vector<double> arrives(static_cast<size_t>(graph.next_slot()));
  Messages messages(graph, topology);
  struct NodeCost {
    KernelCost cost;
    int64_t runs = 0;
  };
  std::vector<NodeCost> costs[2];  // of each node: in the first micro-batch, and in later ones
  for (auto& list : costs) list.resize(graph.nodes.size());
  const auto cost_of = [&](const Node& node, bool first) -> KernelCost {
    if (!rates.gpu) {
      return {.limit = {}, .seconds = graph.cost(node).flops / rates.flops};
    }
    const GraphValue& to = graph.value(node.outputs[0]);
    const bool adds = graph.continues_sum(node.outputs[0]) ||
                      (!first && rules_of(to.role).accumulates && to.storage_of == kNoValue);
    return call_cost(*rates.gpu, graph, node, adds);
  };
  const auto seconds_of = [&](const Node& node, bool first) {
    NodeCost& own = costs[first ? 0 : 1][static_cast<size_t>(&node - graph.nodes.data())];
    if (own.runs++ == 0) own.cost = cost_of(node, first);
    return own.cost.seconds;
  };
  each_run(graph, micro_steps, [&](const Node& node, int64_t micro_batch) {
    const auto index = static_cast<size_t>(micro_batch);
    const auto chunk = static_cast<size_t>(node.chunk);
    double* const own = node.phase == Phase::forward    ? &out.forward[chunk][index]
                        : node.phase == Phase::backward ? &out.backward[chunk][index]
                        : node.phase == Phase::weights  ? &out.weights[chunk][index]
                                                        : &out.update;
    if (own != segment) begin = now;
    segment = own;
    const auto tell = [&](bool is_message, double from, double seconds) {
      if (seen && seconds > 0) seen({node, is_message, micro_batch, from - begin, seconds});
    };
    const auto slot_of = [&] { return static_cast<size_t>(node.attributes.integer("slot")); };
    if (begins_slot(node)) {
      const size_t slot = slot_of();
      const Traffic sent = messages(node);
      const double seconds =
          std::max(sent.within_node / rates.link, sent.between_nodes / node_link);
      const std::string over = node.attributes.text(kOver);
      out.communication += seconds;
      if (node.op->message == MessageKind::receive && node.phase != Phase::update &&
          over.starts_with(mesh_axes::kPipeline)) {
        if (node.phase == Phase::forward && micro_batch == 0) out.received[chunk] += seconds;
        arrives[slot] = now;
        return;
      }
      double& free = free_at[over];
      arrives[slot] = free = std::max(free, now) + seconds;
      tell(true, free - seconds, seconds);
    } else if (node.op->slot == SlotUse::ends) {
      const double arrival = arrives[slot_of()];
      out.exposed += std::max(0.0, arrival - now);
      now = std::max(now, arrival);
    } else {
      const double seconds = seconds_of(node, micro_batch == 0);
      tell(false, now, seconds);
      now += seconds;
      out.compute += seconds;
    }
    *segment = now - begin;
  });
  CallSums calls;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const auto& list : costs) {
      const NodeCost& own = list[i];
      if (rates.gpu && own.runs > 0 && own.cost.seconds > 0)
        calls.add(call_name(graph, graph.nodes[i]), own.cost, own.runs);
    }
  }
  out.calls = calls.sorted();
  return out;
}

}  // namespace dltrain
