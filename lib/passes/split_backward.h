// Pipeline parallelism without most of its bubble (Qi et al. 2023): of the backward, a stage before
// waits only for the gradients that it is sent. The other nodes, gradients of weights and their
// reductions over data-parallel ranks, can run later (step_schedule() in graph/schedule.h).
#pragma once

#include "graph/graph.h"

namespace dltrain {

// Moves the nodes of the backward from which no message to another stage follows to
// Phase::weights, in their order. A graph that sends no gradients (the first stage) stays as it is.
// Follows all passes that add nodes to the backward.
Graph split_backward(Graph graph);

}  // namespace dltrain
