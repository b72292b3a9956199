// Work that goes on behind the nodes that follow it, as messages to other ranks do: an op called
// "…_begin" starts it, one called "…_end" waits for it; the two nodes share the attribute `slot`.
#pragma once

#include "graph/graph.h"

namespace dltrain {

// What verify_graph says of slots; part of it. Throws Error(internal) naming the node unless
//
//   every slot has one begin and, later, one end: of the same work, among the same ranks, run as
//   often in a step
//   the end reads, in order, what the begin gave, and nobody else does
//   what the begin reads and does not overwrite lasts until the end: it is state, or the end reads
//   it too; and nobody writes it between
void verify_slots(const Graph& graph);

}  // namespace dltrain
