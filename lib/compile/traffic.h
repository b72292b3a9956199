// Estimates the communication between ranks in a step and how much of it overlaps computation, from
// the graph alone, and so for any number of ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "compile/gpu.h"
#include "graph/graph.h"
#include "graph/schedule_times.h"

namespace dltrain {

// Placement of a run's ranks: the same number of consecutive ranks on every node.
struct RankTopology {
  Mesh mesh = {};
  int rank = 0;      // the rank to report on
  int per_node = 1;  // ranks
  int nodes() const { return (mesh.size() + per_node - 1) / per_node; }
};

struct Traffic {
  // Bytes of the messages that one rank passes to collectives in a step.
  size_t reduced = 0;    // all-reduce
  size_t scattered = 0;  // reduce-scatter, with the padding of units
  size_t gathered = 0;   // all-gather, likewise
  size_t exchanged = 0;  // all-to-all: whole buffers, of which CPUs send the rows in use
  size_t passed_on = 0;  // sent to other stages of a pipeline
  // Bytes that the rank sends (and receives): twice the message for an all-reduce, once for the
  // others, minus the rank's own part. Ranks send to each other directly
  // (comm/collective_algorithms.h), so the share of a message between nodes is the share of the
  // group's ranks on other nodes.
  double within_node = 0, between_nodes = 0;

  double sent() const { return within_node + between_nodes; }
};

// Returns the traffic of all micro-steps of a rank and of the update.
Traffic step_traffic(const Graph& graph, int64_t micro_steps, const RankTopology& topology);

// Assumptions of the estimate.
struct MachineRates {
  double flops = 1e12;          // FLOP per second of a rank, without a GPU
  std::optional<Gpu> gpu = {};  // calls take the times of compile/cost_model.h
  double link = 10e9;           // bytes per second that a rank sends while it receives as many
  double node_link = 0;         // bytes per second between nodes; 0: same as `link`
  double reserve = static_cast<double>(kDescribedGpuReserve);
};

// The calls of a step that have one name (call_name()).
struct CallSum {
  std::string name, limit;  // of most of the time: see KernelCost
  int64_t count = 0;
  double seconds = 0, bytes = 0, flops = 0;
};

// Seconds of a step. A call takes the time of its arithmetic or, on a GPU, that of the cost model;
// a message takes that of its bytes, and a wait the remaining time of its message. Messages of one
// group are sequential in graph order; those of different groups overlap, as do the parts of one
// message within a node and between nodes. Waiting for other stages of a pipeline is not included
// (graph/schedule_times.h).
struct StepEstimate {
  double compute = 0, communication = 0;
  double exposed = 0;          // communication time that computation does not hide
  std::vector<CallSum> calls;  // on a GPU, longest first
  // Seconds of each segment by chunk and micro-batch, and of the update.
  std::vector<std::vector<double>> forward, backward, weights;
  double update = 0;
  // Seconds of the messages from the stage before, by chunk. They may come while others compute. A
  // backward ends when its gradients are sent, so the next one need not wait for them.
  std::vector<double> received;
  StageTimes times(StepSchedule schedule) const;
};

// A call of the estimated step, or a message.
struct EstimatedEvent {
  const Node& node;
  bool is_message = false;
  int64_t micro_batch = 0;
  double begin = 0, seconds = 0;  // `begin`: since the beginning of the segment
};
// `seen` gets all events, in order.
StepEstimate estimate_step(const Graph& graph, int64_t micro_steps, const RankTopology& topology,
                           const MachineRates& rates,
                           const std::function<void(const EstimatedEvent&)>& seen = {});

}  // namespace dltrain
