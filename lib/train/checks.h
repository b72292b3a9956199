// The sanity suite of `dltrain check`: what a careful practitioner tries before a long run, on the
// person's own configuration and data (Karpathy, "A recipe for training neural networks", 2019).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "train/engines.h"
#include "train/experiment.h"

namespace dltrain {

// error: the check itself broke down, which says nothing of the configuration.
enum class CheckOutcome : uint8_t { pass, fail, skip, error };

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
  // Arithmetic of a forward and backward that is done in float64 on the reference engine, which is
  // exact and slow: a few tens of seconds. Of larger models checks take fewer samples, then f32.
  double most_exact_flops = 2e10;
  // That one check takes. What many steps decide is tried on fewer samples where they would take
  // longer, and passed over where that does not help.
  double most_seconds = 60;
  // That a batch must have: batch norm of vectors needs two. run_checks() finds it.
  int64_t fewest_samples = 1;

  // The same with so much time for each check.
  void allow(double seconds) {
    most_exact_flops *= seconds / most_seconds;
    most_seconds = seconds;
  }
};

// Runs all checks; of one that throws the outcome is an error, or where a sample cannot be read,
// that it failed. Mistakes in the configuration or the data itself are thrown, as `train` would.
std::vector<CheckResult> run_checks(CheckOptions options);

}  // namespace dltrain
