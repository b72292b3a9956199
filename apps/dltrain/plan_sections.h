// The sections of the text that dltrain plan prints.
#pragma once

#include <cstdint>
#include <string>

#include "compile/plan_report.h"
#include "dltrain/commands.h"
#include "dltrain/gpu_estimate.h"
#include "run/session.h"

namespace dltrain {

// "12345" as "12.3 k"; likewise M, G and T.
std::string human_count(double n);
// "210 FLOP", "2.1 GFLOP"
std::string human_flop(double n);
// The number of parameters of a session's model, on this rank.
int64_t parameter_elements(const Session& session);

// Prints a row for each stage of a pipeline, that of its first data-parallel rank. Equal stages in
// sequence have one, with the memory of the first, which has the most micro-batches in flight.
void print_stages(const Session& session);
// Prints the bytes that one rank sends in a step, and how much of their time the computation hides.
void print_traffic(const Session& session, const PlanReport& report, const MachineRates& rates);
// Returns what the last rank along `tensor` allocates, of whose first rank `session` is. Remainders
// of shards belong to the first ranks, so this is the least of these ranks and `session` the most.
size_t least_bytes(const Session& session);

// Prints what one rank allocates before the first step, and what other ranks do if that differs.
void print_memory(const Session& session, const PlanReport& report);
// Prints what steps of each length need; they share the arena.
void print_lengths(const Session& session, const PlanReport& report);
// Prints the other host memory of a run, without libraries and data.
void print_host_memory(const Session& session);

// Prints all sections.
void print_session(const Session& session, const PlanRequest& request, const MachineRates& rates);

}  // namespace dltrain
