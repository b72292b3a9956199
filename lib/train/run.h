// One run from configuration to exit code: run folder, resume, session, loop, reports.
#pragma once

#include <filesystem>
#include <string>

#include "train/engines.h"
#include "train/experiment.h"
#include "train/session.h"

namespace dltrain {

struct RunOptions {
  Engines engines;
  RunRanks ranks = RunRanks();
  std::filesystem::path folder;  // empty: runs/<name>
  std::string resume = "never";  // never, auto, or a checkpoint or run folder
  bool overwrite = false;        // discard a run that is there
  bool allow_changes = false;    // go on with another loss, model, teacher or other data
  // A restart: an earlier attempt has begun this run in this folder, so its newest checkpoint comes
  // before what `resume` says, and nothing is discarded.
  bool goes_on = false;
  std::filesystem::path result;  // empty: none; the summary as one JSON object
  bool quiet = false;            // only warnings and errors on the terminal
  std::string log_level = "info";
};

// What the run would begin with: where it would go on from, or nothing. Throws what run_training
// would throw about log level, run folder and checkpoint; touches nothing.
std::string check_run(const Session& session, const RunOptions& options);

// Returns ok, or stopped (75) when a signal or the time limit ended the run with a checkpoint.
// Every failure is thrown, that of another rank as MistakeElsewhere (train/mistakes.h); a summary
// with the exit code is written to `result` even then.
ExitCode run_training(Experiment& experiment, const RunOptions& options);

}  // namespace dltrain
