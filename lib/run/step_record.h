// The record of a logged step, made from the sums of its report and the time since the last record.
#pragma once

#include <chrono>
#include <cstdint>

#include "run/trainer.h"

namespace dltrain {

// The position of a training loop when it logs a step.
struct StepMark {
  int64_t step = 0;  // steps done
  std::chrono::steady_clock::time_point time = std::chrono::steady_clock::now();
  double wait = 0;    // seconds that the loop has waited for data
  double beside = 0;  // and spent in evaluations, samples and saving
  int64_t tokens = 0;
};

// `loss`: mean of the step; `valid`: the targets that its metrics are means over. The step is not
// marked as skipped, and has no loss scale or gradient noise.
StepRecord record_step(const Session& session, const StepReport& report, double loss, double valid,
                       const StepMark& last, const StepMark& now);

}  // namespace dltrain
