// The evaluation of a sweep: it ranks the trials, reports parameters whose best values lie at an
// edge of their range, and selects the best trial for each value of the scientific parameters.
#pragma once

#include <string>
#include <vector>

#include "sweep/trials.h"

namespace dltrain {

struct RankedTrial {
  int64_t trial = 0;
  std::vector<std::string> values = {};
  size_t round = 0;                    // the last one it has completed
  int64_t ended = 0, runs = 0;         // runs that have ended, and those with a result
  double mean = NAN, deviation = NAN;  // of the metric; deviation: of two runs or more
  double loss = NAN, seconds = 0;      // training loss (mean), time of all runs and starts
  double steps = NAN;                  // the fewest of a run
  TrialEnd end = TrialEnd::complete;   // the worst of a run, with code and message of the first
  int exit_code = 0;
  std::string message = {};

  // Every run that has ended has a result.
  bool has_result() const { return std::isfinite(mean); }
};

// Trials that have ended, best first; those that got further come first, those without a result
// last.
std::vector<RankedTrial> rank_trials(Trials& trials);

// A table of at most `most` trials.
std::string ranking_table(const Trials& trials, const std::vector<RankedTrial>& ranked,
                          size_t most);
// All trials as CSV, one row each, with all parameters.
std::string ranking_csv(const Trials& trials, const std::vector<RankedTrial>& ranked);

// Sentences about parameters whose best values lie at the edge of their range: "3 of the best 5
// trials lie at the upper edge of learning_rate; extend it to 1".
std::vector<std::string> edge_sentences(const Trials& trials,
                                        const std::vector<RankedTrial>& ranked);
// A table of the best trial for each combination of scientific values; "" without scientific
// parameters.
std::string scientific_table(const Trials& trials, const std::vector<RankedTrial>& ranked);
// The metric of the trials over each parameter as text plots; "" for fewer than five trials.
std::string parameter_plots(const Trials& trials, const std::vector<RankedTrial>& ranked,
                            bool utf8);
// Sentences about results that cannot be compared: of trials that training.max_time has ended at
// different steps, and of trials with other training data.
std::vector<std::string> comparison_warnings(const Trials& trials,
                                             const std::vector<RankedTrial>& ranked);
// Returns whether the loss of a trial was still falling, saturated or overfitting (judge_curve() of
// report/curves.h); "" for a short run, or one with few evaluations.
std::string curve_sentence(const Trials& trials, int64_t trial);

}  // namespace dltrain
