// The parts of `dltrain plan` about memory.
#pragma once

#include "compile/plan_report.h"
#include "run/session.h"

namespace dltrain {

// Returns what the last rank along `tensor` allocates, of whose first rank `session` is. Remainders
// of shards belong to the first ranks, so this is the least of these ranks and `session` the most.
size_t least_bytes(const Session& session);

// Prints what one rank allocates before the first step, and what other ranks do if that differs.
void print_memory(const Session& session, const PlanReport& report);
// Prints what steps of each length need; they share the arena.
void print_lengths(const Session& session, const PlanReport& report);
// Prints the other host memory of a run, without libraries and data.
void print_host_memory(const Session& session);

}  // namespace dltrain
