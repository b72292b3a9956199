// Sums of a few numbers of the host over the ranks.
#pragma once

#include "train/session.h"

namespace dltrain {

// The sum or maximum of a few numbers over the ranks, through their group over host memory; nothing
// with one rank. `about`: what the numbers are, for messages.
template <typename T>
void reduce_on_host(Session& session, T* values, size_t count, DType dtype, ReduceOp op,
                    const CallSubject& about) {
  Collectives* group = session.options.ranks.collectives;
  if (group == nullptr) return;
  HostStream host;
  group->wait(group->all_reduce(values, count, dtype, op, host, about), host);
}

}  // namespace dltrain
