// Functions of the commands that run on several ranks: starting the ranks, and running as one.
#pragma once

#include <functional>

#include "comm/world.h"
#include "dltrain/commands.h"
#include "launch/launcher.h"

namespace dltrain {

// Connects to the other ranks and runs `body`. Returns the result of `body`. If a rank is lost,
// ends the process (exit code 6), even if the training thread hangs.
ExitCode run_as_rank(const RankEnvironment& environment, const ParallelismConfig& parallelism,
                     const std::function<ExitCode(const World& world)>& body);

// Throws Error(usage) if an argument can be read only once (/dev/stdin, <(…)), because every rank
// reads it.
void refuse_pipes(const std::vector<std::string>& arguments);

// Parses --nproc-per-node (see launch/options.h) with the number of GPUs of this machine.
int parse_ranks(const std::string& text);

// Throws Error(usage) for --nproc-per-node if this process is a rank itself.
void refuse_ranks_of_ranks(int ranks);
// Starts this command without --nproc-per-node `ranks` times. Returns the exit code.
int launch_ranks(int ranks, const LaunchedRun& run);

}  // namespace dltrain
