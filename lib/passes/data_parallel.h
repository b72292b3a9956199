// Data parallelism: every rank runs the same graph on its own micro-batches; what is summed over a
// step (gradients, batch statistics, metrics) is summed over the ranks as well, before the update
// reads it.
#pragma once

#include <cstddef>

#include "graph/graph.h"

namespace dltrain {

struct DataParallelOptions {
  int ranks = 1;
  // Sums travel in messages of about this size: large enough to use the link well, small enough
  // that most of them leave while the backward is still running. A tensor is never split.
  size_t bucket_bytes = size_t{25} << 20;
};

// Adds the reductions; with one rank the graph comes back as it is.
//
// A bucket holds sums of one role and dtype that are neighbours in the StateLayout (ascending value
// ids), so it is one range of memory. Its all_reduce_begin stands right after the last node that
// writes one of its members and runs in the last micro-step only; its all_reduce_end stands at the
// start of the update, whose nodes then read the reduced sums. In a graph without an update
// (evaluation) the ends come last. Slots number the buckets in the order in which they begin, which
// is the same on all ranks.
Graph data_parallel(Graph graph, const DataParallelOptions& options);

}  // namespace dltrain
