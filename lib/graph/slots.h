// Work that goes on behind the nodes that follow it, as messages to other ranks do: an op called
// "…_begin" starts it, one called "…_end" waits for it; the two nodes share the attribute `slot`.
#pragma once

#include <string>

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

// Whether a node starts such work, and what the tensors of that are called, for messages:
// "gradient.layers.5.weight and 3 more".
bool begins_slot(const Node& node);
std::string subject_of(const Graph& graph, const Node& begin);

}  // namespace dltrain
