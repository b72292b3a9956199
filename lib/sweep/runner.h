// Trains the trials of a sweep as processes, several at a time.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "sweep/trials.h"

namespace dltrain {

struct SweepRunnerOptions {
  // The arguments of `dltrain train` that all runs share: files and settings.
  std::vector<std::string> arguments = {};
  std::string name = {};                  // of the experiment
  int64_t seed = 0;                       // of the first repeat
  std::filesystem::path prometheus = {};  // of the experiment; each trial writes a file beside it
  // Called when a run has ended.
  std::function<void(const SweepJob&, const TrialResult&)> on_result = {};
};

// Trains what is missing. Returns ok if every run has ended, stopped (75) if a signal ended the
// sweep: the runs have then saved checkpoints, from which the next call continues.
ExitCode train_trials(Trials& trials, const SweepRunnerOptions& options);

}  // namespace dltrain
