// What a step sends between ranks, and how much of that time the computation hides: on paper, from
// the graph alone, so for any number of ranks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/mesh.h"
#include "graph/graph.h"

namespace dltrain {

// Where the ranks of a run are: as many consecutive ones on every node.
struct RankPlaces {
  Mesh mesh = {};
  int rank = 0;      // the one that is looked at
  int per_node = 1;  // ranks
  int nodes() const { return (mesh.size() + per_node - 1) / per_node; }
};

struct Traffic {
  // Bytes of whole messages in a step, as one rank hands them over.
  size_t reduced = 0;    // all-reduce
  size_t scattered = 0;  // reduce-scatter, with the padding of units
  size_t gathered = 0;   // all-gather, likewise
  // What the rank sends (and receives): an all-reduce takes its message twice, the others once, but
  // for the rank's own part. Ranks send to each other directly (comm/exchange.h), so the share of
  // a message that leaves the node is that of the ranks of its group that are elsewhere.
  double within_node = 0, between_nodes = 0;

  double sent() const { return within_node + between_nodes; }
};

// Of all micro-steps of a rank and the update.
Traffic step_traffic(const Graph& graph, int64_t micro_steps, const RankPlaces& places);

// What the estimate stands on.
struct Rates {
  double flops = 1e12;   // arithmetic that a rank does in a second
  double link = 10e9;    // bytes that a rank sends in a second while it receives as many
  double node_link = 0;  // of these between nodes; 0: as many
};

// Seconds of a step. Calls take the time of their arithmetic and messages that of what is sent; a
// wait takes what is left of its message. The messages of one group go one at a time, in the order
// of the graph, those of different groups beside each other; so do the bytes of one message within
// a node and between nodes.
struct StepEstimate {
  double compute = 0, communication = 0;
  double exposed = 0;  // of communication: what the computation waits for
};
StepEstimate estimate_step(const Graph& graph, int64_t micro_steps, const RankPlaces& places,
                           const Rates& rates);

}  // namespace dltrain
