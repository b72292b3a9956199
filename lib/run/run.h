// One run from configuration to exit code: run folder, resume, session, loop, reports.
#pragma once

#include <filesystem>
#include <string>

#include "experiment/experiment.h"
#include "run/engines.h"
#include "run/session.h"

namespace dltrain {

struct RunOptions {
  Engines engines;
  RunRanks ranks = RunRanks();
  std::filesystem::path folder;  // empty: runs/<name>
  std::string resume = "never";  // never, auto, or a checkpoint or run folder
  bool overwrite = false;        // discard an existing run
  bool allow_changes = false;    // resume with another loss, model, teacher or other data
  // A restart of a run that an earlier attempt started in this folder: its newest checkpoint takes
  // precedence over `resume`, and nothing is discarded.
  bool resuming = false;
  // After this step, or share of all steps ("25%"), the run stops (75). "": at its end.
  std::string stop_at = {};
  std::filesystem::path result;  // empty: none; the summary as one JSON object
  bool quiet = false;            // only warnings and errors on the terminal
  std::string log_level = "info";
  // The end of the message about a run that was stopped.
  std::string go_on = "the same command with --resume auto continues";
  std::string layout = {};                // a line about parallelism.layout auto, to be logged
  std::vector<std::string> command = {};  // of this process, for attempts.jsonl
};

// Returns the step that RunOptions::stop_at names; INT64_MAX: none. Throws Error(usage).
int64_t stop_at(const std::string& text, int64_t max_steps);

// Describes where the run would start. Throws the errors of run_training() about log level, run
// folder and checkpoint; changes no file.
std::string check_run(Session& session, const RunOptions& options);

// Returns ok, or stopped (75) when a signal or the time limit ended the run with a checkpoint.
// Every failure is thrown, that of another rank as RemoteError (runtime/remote_error.h); a summary
// with the exit code is written to `result` even then.
ExitCode run_training(Experiment& experiment, const RunOptions& options);

}  // namespace dltrain
