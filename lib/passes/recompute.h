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
//   automatic  what is kept is the fastest choice for a given memory (passes/recompute_chain.h):
//              between these cuts single values are kept or not, and values may be recomputed
//              several times
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace dltrain {

enum class Recompute : uint8_t { none, selective, blocks, full, automatic };

struct RecomputeOptions {
  Recompute mode = Recompute::none;
  // Patterns of layers (config/name_patterns.h) whose activations are kept, or recomputed, whatever
  // the mode says.
  std::vector<std::string> keep = {}, again = {};
  // For `automatic`: the memory, from 0 (the least possible) to 1 (nothing runs again), and the
  // seconds of a node, whose unit does not matter.
  double share = 1;
  std::function<double(const Graph&, const Node&)> seconds = {};
};

// The attribute (boolean) of forward nodes that are recomputed in every mode, `none` too: gathers,
// whose results are larger than what they gather (passes/sequence_cut.h), and copies of these.
inline constexpr const char* kAlwaysAgain = "always_again";

// The attribute (boolean) of forward nodes that are never recomputed and of which no choice
// depends: attention over the tokens of several ranks (passes/lower_context.cpp), whose nodes
// differ from rank to rank. All ranks must recompute the same, or their messages would have other
// orders.
inline constexpr const char* kNeverAgain = "never_again";

struct Recomputed {
  Graph graph;
  int nodes = 0;       // forward nodes that are recomputed
  double flops = 0;    // of these nodes, per micro-step
  double seconds = 0;  // likewise, by RecomputeOptions::seconds
};

// Throws Error(usage) for `blocks` of a model without a repeat.
Recomputed recompute(Graph graph, const RecomputeOptions& options);

// Returns for every forward node the number of its piece, or −1. Values that are read only within
// their piece are recomputed (`blocks` and `full`).
std::vector<int> recomputed_pieces(const Graph& graph, Recompute mode);

// The values that `automatic` keeps, of those that own memory (GraphValue::storage_of).
struct RecomputeSchedule {
  struct Sweep {
    int last = 0;               // the stage of the forward at whose backward it runs
    std::vector<ValueId> kept;  // until the backward of their stage, in order of production
  };
  std::vector<int> stage;     // by value: the stage of the forward that makes it; −1: it is kept
  std::vector<bool> result;   // by value: the next stage reads it
  std::vector<Sweep> sweeps;  // the forward first
};

// `droppable`: the values (by id) that can be recomputed.
RecomputeSchedule schedule_recomputation(const Graph& graph, const RecomputeOptions& options,
                                         const std::vector<bool>& droppable);

}  // namespace dltrain
