// Asynchronous work, such as messages to other ranks, which overlaps the nodes that follow: one
// op begins it, another waits for its end (OpDef::slot). Both have the same attribute `slot`.
#pragma once

#include <string>

#include "comm/mesh.h"
#include "graph/graph.h"

namespace dltrain {

// The part of verify_graph that checks slots. Throws Error(internal) naming the node unless
//
//   every slot has one begin and, later, one end: for the same work, among the same ranks, run as
//   often in a step
//   the end reads the outputs of the begin in order, and no other node does
//   inputs that the begin does not overwrite live until the end (they are state, or the end reads
//   them too), and no node writes them before the end
void verify_slots(const Graph& graph);

// begins_slot: the node starts such work. subject_of: names of its tensors and axes for messages:
// "gradient of layers.5.weight and 3 more, axis data"; `begin` is one of the graph's nodes.
bool begins_slot(const Node& node);
std::string subject_of(const Graph& graph, const Node& begin, const Mesh& mesh = {});

}  // namespace dltrain
