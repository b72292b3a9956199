// Detects silent data corruption: replicas of a model must have equal bits.
#pragma once

#include "run/session.h"

namespace dltrain {

// Compares the hashes of the parameters of the ranks that hold the same part of the model. Every
// rank calls it after the same step. If they differ, throws Error(rank) on rank 0, which names the
// ranks that differ from most others, and RemoteError on the others. Does nothing with one rank.
void verify_replicas(Session& session, int64_t step);

}  // namespace dltrain
