// The sanity checks of `dltrain check` on the configuration and data of a run (Karpathy, "A recipe
// for training neural networks", 2019).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "experiment/experiment.h"
#include "run/engines.h"

namespace dltrain {

// error: the check itself has failed, which is no statement about the configuration.
// note: advice, which neither passes nor fails.
enum class CheckOutcome : uint8_t { pass, fail, skip, error, note };

struct CheckResult {
  std::string name;  // "loss at init"
  CheckOutcome outcome = CheckOutcome::fail;
  std::string detail;            // what was measured and what was expected; of a skipped check: why
  ExitCode code = ExitCode::ok;  // of an error

  bool failed() const { return outcome == CheckOutcome::fail; }
};

struct CheckOptions {
  Engines engines;
  // Loads the experiment anew with further overrides ("training.global_batch_size=4").
  std::function<Experiment(const std::vector<std::string>& overrides)> load;
  // Called as each check ends.
  std::function<void(const CheckResult&)> on_result;
  // The greatest arithmetic of a forward and backward in float64 on the reference engine, which is
  // exact and slow: a few tens of seconds. For larger models checks use fewer samples, then f32.
  double most_exact_flops = 2e10;
  // The greatest duration of one check. Checks of many steps use fewer samples if they would take
  // longer, and are skipped if that does not help.
  double most_seconds = 60;
  // The least number of samples of a batch: batch norm of vectors needs two. Set by run_checks().
  int64_t fewest_samples = 1;

  // Sets the time for each check.
  void allow(double seconds) {
    most_exact_flops *= seconds / most_seconds;
    most_seconds = seconds;
  }
};

// Runs all checks. The outcome of a check that throws is `error`, or `fail` if a sample cannot be
// read. Throws for an invalid configuration or data, as `train` does.
std::vector<CheckResult> run_checks(CheckOptions options);

}  // namespace dltrain
