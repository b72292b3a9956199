// When the stages of a pipeline run the segments of a step, by the estimated times of these.
#pragma once

#include <span>
#include <vector>

#include "graph/schedule.h"

namespace dltrain {

// The segments of one rank's step in the order of its schedule, with the seconds that each takes.
struct StageTimes {
  StepSchedule schedule;
  std::vector<double> seconds;  // of each segment
};

// Returns the beginning of each segment of each stage, in seconds. A forward begins when the stage
// is free and that of the stage before has ended, a backward when that of the next stage has ended,
// the update when all stages have ended their last backward (for the gradient norm).
std::vector<std::vector<double>> begin_times(std::span<const StageTimes> stages);

// The seconds from the first beginning to the last end.
double step_seconds(std::span<const StageTimes> stages);

}  // namespace dltrain
