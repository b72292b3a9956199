// Hides messages between ranks behind work of the backward.
//
// The gradients of parameters are not needed before the update. So the products that compute them
// are moved from where the reverse pass puts them to behind the begin of a later message of tensor,
// sequence, context or expert parallelism, where they run while it is on its way: half of their
// arithmetic beside a reduce-scatter, which a gather follows soon, and all beside another one. A
// gather of values that are known earlier (passes/recompute.h) begins as soon as the message before
// it has ended. The order of other work, and so all results, stay as they are. The sums of the
// gradients of biases and scales, which are small, become one message at the end.
//
// Precedes the reductions over data-parallel ranks, which have an order of their own.
#pragma once

#include "graph/graph.h"

namespace dltrain {

Graph overlap_messages(Graph graph);

}  // namespace dltrain
