// Runs a program as several ranks on this host: starts, watches and ends them together.
//
// * Environment: torchrun's variables (comm/environment.h) with a store on 127.0.0.1 that this
// process
//   serves on a free port, guarded by a random secret; OMP_NUM_THREADS = cores / ranks unless it is
//   set.
// * Output: rank 0's lines pass as they are, so that a pipe sees what one process would have
// written;
//   those of the others begin with "[rank N] ". Where stdout or stderr is a terminal rank 0 keeps
//   it (and its progress bar). Ranks read from /dev/null.
// * Signals: SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 go on to every rank. The third SIGINT or
//   SIGTERM kills the ranks.
// * Failure: when a rank ends with a code other than 0 the others get SIGTERM, and SIGKILL after
//   `grace`. The first failing rank is named on stderr with its code or signal, and its last lines
//   are repeated unless they stand right above. A rank that reports the loss of a peer (code 6), or
//   stopped early (75), is blamed only when no rank fails in its own way within a moment.
// * No rank outlives this call, nor this process however it ends (the kernel kills them); processes
//   that a rank has left behind in its group are killed with it.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "comm/environment.h"

namespace dltrain {

struct LaunchOptions {
  int processes = 1;
  std::string executable = {};                  // empty: this program
  Environment variables = {};                   // set for all ranks, over the inherited ones
  std::chrono::milliseconds grace{15'000};      // for the others to end after a failure
  std::chrono::milliseconds blame_window{500};  // for the cause to appear after a code 6
  size_t remembered_lines = 10;                 // of a failing rank's stderr, repeated at the end
};

// Blocks until all ranks have ended. Returns 0, or the first failing rank's own code, 6 for one
// that was killed by a signal, 75 when the ranks stopped early. Throws Error when a rank cannot be
// started.
//
// Call it from the main thread before others are started: signals are taken through a signalfd,
// which needs them to be blocked in every thread.
int launch_local(const LaunchOptions& options, const std::vector<std::string>& arguments);

}  // namespace dltrain
