// The values of the trials of a sweep. Draws are functions of (sweep.seed, number of the trial),
// those of `tpe` also of the results of earlier trials: they do not depend on which trial ended
// first, on other processes, or on interruptions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "experiment/sweep_config.h"

namespace dltrain {

// A finished trial, for the searches that learn.
struct Observation {
  std::vector<std::string> values;  // of sweep.parameters, in their order
  double score = 0;                 // smaller is better; infinity: the trial has diverged or failed
};

// The number of trials: sweep.trials, or the points of the grid.
int64_t trial_count(const SweepConfig& sweep);

// Returns the number of trials, from 0 on, whose results `values_of_trial` needs for trial `index`.
// Sweeps with sweep.parallel runs at a time leave out as many of the last ones.
int64_t needed_trials(const SweepConfig& sweep, int64_t index);

// Returns the values of the parameters in trial `index`. `earlier`: of trials 0, 1, … to
// needed_trials().
std::vector<std::string> values_of_trial(const SweepConfig& sweep, int64_t index,
                                         std::span<const Observation> earlier = {});

// The point in [0, 1) that the tree-structured Parzen estimator proposes, a number for each
// parameter (sweep/tpe.cpp).
std::vector<double> tpe_point(const SweepConfig& sweep, int64_t index,
                              std::span<const Observation> earlier);

}  // namespace dltrain
