// What commands that run on several ranks share: starting the ranks, and being one.
#pragma once

#include <functional>

#include "comm/world.h"
#include "dltrain/commands.h"

namespace dltrain {

// Joins the other ranks, does `body`, and parts from them. Returns what `body` returns. A rank that
// is lost meanwhile ends the process (exit code 6), whatever the training thread is stuck in.
ExitCode as_rank(const RankEnvironment& environment, const ParallelismConfig& parallelism,
                 const std::function<ExitCode(const World& world)>& body);

// Among the arguments of ranks: what can be read once only (/dev/stdin, <(…)) is a usage error.
void refuse_pipes(const std::vector<std::string>& arguments);

// --nproc-per-node of the short way: as that of `launch` (launch/options.h), with the GPUs of this
// machine.
int parse_ranks(const std::string& text);

// --nproc-per-node N: throws Error(usage) in a process that is a rank already.
void refuse_ranks_of_ranks(int ranks);
// Starts this command, without --nproc-per-node, `ranks` times. Returns the exit code.
int launch_ranks(int ranks);

}  // namespace dltrain
