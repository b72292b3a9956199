// The logged steps and evaluations of a run as columns, for plots.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace dltrain {

// Columns of metrics.jsonl by key, all of one length. NaN: absent or not finite.
struct CurveTable {
  std::map<std::string, std::vector<double>> columns = {};
  size_t rows = 0;
  size_t not_finite = 0;  // rows whose loss is not finite

  // A column, or an empty one.
  const std::vector<double>& column(const std::string& key) const;
};

struct RunCurves {
  CurveTable train, eval;  // eval: keys begin with "eval_", beside step, time and counters
};

// Lines that are no JSON objects are skipped.
RunCurves read_curves(const std::filesystem::path& run);

// Returns at most about `points` rows: the first, the last, and of each group of adjacent rows
// those with the smallest and largest loss (of training or evaluation) and gradient norm, so that
// no spike is lost. 0: all rows.
CurveTable thinned(const CurveTable& table, size_t points);

// Judges the length of a training by its loss curve: "still falling at the end: more steps would
// help", "lowest at step 300, not at the end", "saturated from step 300 on", "overfits from step
// 200 on: 12 % above its minimum at the end"; "" for fewer than 5 evaluations or 20 logged steps.
// `evaluation`: the curve is that of the eval split, which alone can show overfitting. That of
// training is no advice for a run with evaluations.
std::string judge_curve(const std::vector<double>& steps, const std::vector<double>& losses,
                        bool evaluation);

}  // namespace dltrain
