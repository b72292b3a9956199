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
  int64_t runs = 0;                    // with a result
  double mean = NAN, deviation = NAN;  // of the metric; deviation: of two runs or more
  double loss = NAN, seconds = 0;      // training loss (mean), time of all runs and starts
  double steps = NAN;
  int exit_code = 0;  // of the first run that failed otherwise than by divergence (4)
  std::string message = {};
};

// Trials with a result, best first; those that got further come first, failed ones last.
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
// For each combination of scientific values its best trial; "" without scientific parameters.
std::string scientific_table(const Trials& trials, const std::vector<RankedTrial>& ranked);
// The metric of the trials over each parameter as text plots; "" for fewer than five trials.
std::string parameter_plots(const Trials& trials, const std::vector<RankedTrial>& ranked,
                            bool utf8);
// Returns whether the loss of a trial was still falling, saturated or overfitting (judge_curve() of
// report/curves.h); "" for a short run.
std::string curve_sentence(const Trials& trials, int64_t trial);

}  // namespace dltrain
