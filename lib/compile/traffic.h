// What a step sends between ranks, and how much of that time the computation hides: on paper, from
// the graph alone, so for any number of ranks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "graph/graph.h"

namespace dltrain {

// Bytes of whole messages in a step, as one rank hands them over.
struct Traffic {
  size_t reduced = 0;    // all-reduce
  size_t scattered = 0;  // reduce-scatter, with the padding of units
  size_t gathered = 0;   // all-gather, likewise

  // What a rank sends (and receives): an all-reduce takes its message twice, the others once, but
  // for the rank's own part.
  double sent(int ranks) const;
};

// Of all micro-steps of a rank and the update.
Traffic step_traffic(const Graph& graph, int64_t micro_steps, int ranks);

// What the estimate stands on.
struct Rates {
  double flops = 1e12;  // arithmetic that a rank does in a second
  double link = 10e9;   // bytes that a rank sends in a second while it receives as many
};

// Seconds of a step. Calls take the time of their arithmetic and messages that of what is sent, one
// at a time in the order of the graph; a wait takes what is left of its message.
struct StepEstimate {
  double compute = 0, communication = 0;
  double exposed = 0;  // of communication: what the computation waits for
};
StepEstimate estimate_step(const Graph& graph, int64_t micro_steps, int ranks, const Rates& rates);

}  // namespace dltrain
