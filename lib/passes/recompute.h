// Recomputation: values that the backward reads are not kept from the forward but computed again
// when the backward comes to them (gradient checkpointing; Chen et al. 2016, "Training Deep Nets
// with Sublinear Memory Cost"). The backward gets copies of forward nodes; they run the same
// kernels on the same bits, and random ones draw the same numbers, so no result changes by a bit.
// It runs after fusion, so that what is run again is what was run.
//
//   selective  cheap ops are run again: all but matrix products, convolutions, attention and
//              recurrent networks, whose results are kept
//   blocks     every copy of a `repeat` is run again, but for what leaves it
//   full       the forward is cut where one value alone goes on, into pieces whose greatest and
//              whose borders together take the least memory; each piece is run again
#pragma once

#include <vector>

#include "graph/graph.h"

namespace dltrain {

enum class Recompute : uint8_t { none, selective, blocks, full };

struct Recomputed {
  Graph graph;
  int nodes = 0;     // forward nodes that run again
  double flops = 0;  // of these, a micro-step
};

// Throws Error(usage) for `blocks` of a model without a repeat.
Recomputed recompute(Graph graph, Recompute mode);

// For every forward node a piece of the forward, or −1: what lies within a piece is recomputed
// (`blocks` and `full`).
std::vector<int> recomputed_pieces(const Graph& graph, Recompute mode);

}  // namespace dltrain
