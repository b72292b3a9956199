// Computes when the stages of a pipeline run the segments of a step, from the segments' times.
#pragma once

#include <span>
#include <vector>

#include "graph/schedule.h"

namespace dltrain {

// The segments of one rank's step in the order of its schedule, with the seconds that each takes.
struct StageTimes {
  StepSchedule schedule;
  std::vector<double> seconds;  // of each segment
  // The seconds from the end of the segment whose values each reads to their arrival. An empty list
  // stands for zeros.
  std::vector<double> delays = {};
};

// Returns the beginning of each segment of the ranks along a pipeline, in seconds. A forward begins
// when the rank is free and the values of the stage before have arrived, a backward when those of
// the next stage have, the update when all ranks have ended their last segment (for the gradient
// norm). Chunk c of rank r is stage c · ranks + r.
std::vector<std::vector<double>> begin_times(std::span<const StageTimes> ranks);

// The seconds from the first beginning to the last end.
double step_seconds(std::span<const StageTimes> ranks);

}  // namespace dltrain
