// Recomputation: values that the backward reads are not kept from the forward but computed again in
// the backward (gradient checkpointing; Chen et al. 2016, "Training Deep Nets with Sublinear Memory
// Cost"). The backward gets copies of forward nodes, which run the same kernels on the same bits
// and draw the same random numbers, so results are bit-identical. Runs after fusion, so that the
// fused nodes are copied.
//
//   selective  cheap ops are recomputed: all but matrix products, convolutions, attention and
//              recurrent networks, whose results are kept
//   blocks     every copy of a `repeat` is recomputed, except values read outside of it
//   full       the forward is cut where a single value is live, into pieces such that the largest
//              piece plus the values at the cuts take the least memory; each is recomputed
#pragma once

#include <vector>

#include "graph/graph.h"

namespace dltrain {

enum class Recompute : uint8_t { none, selective, blocks, full };

// The attribute (boolean) of forward nodes that are recomputed in every mode, `none` too: gathers,
// whose results are larger than what they gather (passes/sequence_cut.h), and copies of these.
inline constexpr const char* kAlwaysAgain = "always_again";

struct Recomputed {
  Graph graph;
  int nodes = 0;     // forward nodes that are recomputed
  double flops = 0;  // of these nodes, per micro-step
};

// Throws Error(usage) for `blocks` of a model without a repeat.
Recomputed recompute(Graph graph, Recompute mode);

// Returns for every forward node the number of its piece, or −1. Values that are read only within
// their piece are recomputed (`blocks` and `full`).
std::vector<int> recomputed_pieces(const Graph& graph, Recompute mode);

}  // namespace dltrain
