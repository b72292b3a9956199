// The section `sweep` of an experiment file: which keys `dltrain sweep` varies, and how it chooses
// their values. All other commands use the experiment without it; `train` refuses it.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "config/fields.h"
#include "experiment/metric_watch.h"

namespace dltrain {

enum class SearchKind : uint8_t { grid, random, quasi_random, halving, tpe };

// One key that is varied: `[a, b]` is short for `{values: [a, b]}`.
struct SweepParameter : ConfigObject {
  std::string key;                                  // "optimizer.learning_rate"
  std::vector<std::string> values;                  // as YAML; empty: a range
  std::optional<std::array<double, 2>> range, log;  // linear or logarithmic
  bool integer = false;
  std::optional<int64_t> points;  // of a range, on a grid

  bool is_range() const { return range || log; }
  const std::array<double, 2>& limits() const { return log ? *log : *range; }
  void describe(Fields& f);
  void validate(Diagnostics& diagnostics) const;
};

// After Google's Deep Learning Tuning Playbook: scientific parameters are those whose effect is
// to be learnt; the best nuisance parameters are chosen for each of their values.
struct SweepRoles : ConfigObject {
  std::vector<std::string> scientific, nuisance;
  void describe(Fields& f);
};

struct SweepConfig : ConfigObject {
  std::optional<std::string> metric;  // a key of summary.json
  std::optional<MetricMode> mode;
  SearchKind search = SearchKind::quasi_random;
  std::optional<int64_t> trials;  // absent: all points of a grid
  int64_t seed = 0;               // of the draws
  int64_t repeats = 1;        // runs of each trial, with the seeds s, s + 1, … of the experiment
  int64_t parallel = 1;       // runs at a time
  int64_t ranks = 1;          // of a run
  std::vector<int64_t> gpus;  // of this machine; empty: as a run chooses
  int64_t reduction = 3;      // halving: the best 1/reduction of the trials goes on
  std::optional<int64_t> min_steps;  // halving: of the first round
  std::vector<SweepParameter> parameters;
  std::optional<SweepRoles> roles;

  // Turns the map `parameters` into a list.
  static bool rewrite(ConfigNode& map, Diagnostics& diagnostics);
  void describe(Fields& f);
  void validate(Diagnostics& diagnostics) const;
  bool is_scientific(const std::string& key) const;
};

}  // namespace dltrain
