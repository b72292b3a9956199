// Sums of a few numbers of the host over the ranks.
#pragma once

#include "train/session.h"

namespace dltrain {

// The host-side sum or maximum of a few numbers over the ranks. Host memory: the group is Gloo's.
// (Streams mean nothing to it; evaluation and multi-rank steps may allocate one.)
template <typename T>
void reduce_on_host(Session& session, T* values, size_t count, DType dtype, ReduceOp op) {
  Collectives* group = session.options.collectives;
  if (group == nullptr) return;
  const auto stream = session.executor->device().make_stream();
  group->wait(group->all_reduce(values, count, dtype, op, *stream), *stream);
}

}  // namespace dltrain
