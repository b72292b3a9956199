#include "sweep/ranking.h"

#include <algorithm>

#include "base/encodings.h"
#include "config/suggest.h"
#include "report/curves.h"
#include "run/run_record.h"
#include "sweep/parameter.h"
#include "telemetry/plot.h"
#include "telemetry/progress.h"

namespace dltrain {
namespace {

using Rows = std::vector<std::vector<std::string>>;

std::string shown_mean(const RankedTrial& trial) {
  if (!std::isfinite(trial.mean)) return "-";
  const std::string mean = fmt::format("{:.5g}", trial.mean);
  return std::isfinite(trial.deviation) ? fmt::format("{} +- {:.2g}", mean, trial.deviation) : mean;
}

std::string shown_end(const RankedTrial& trial, bool repeats) {
  const bool failed = trial.end == TrialEnd::failed;
  const std::string what = failed                            ? "failed"
                           : trial.end == TrialEnd::diverged ? "diverged"
                                                             : "no result";
  if (repeats) {
    return fmt::format("{} ({} of {} runs)", what, trial.ended - trial.runs, trial.ended);
  }
  return failed ? fmt::format("failed ({})", trial.exit_code) : what;
}

std::string csv_number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "";
}

// Trials that have a finite result.
std::vector<RankedTrial> with_result(const std::vector<RankedTrial>& ranked) {
  std::vector<RankedTrial> out;
  std::ranges::copy_if(ranked, std::back_inserter(out), &RankedTrial::has_result);
  return out;
}

// −1 at the lower edge of the parameter, 1 at the upper one, else 0.
int edge_of(const SweepParameter& parameter, const std::string& value) {
  if (!parameter.is_range()) {
    if (parameter.values.size() < 3) return 0;
    return value == parameter.values.front() ? -1 : value == parameter.values.back() ? 1 : 0;
  }
  constexpr double kEdge = 0.2;
  const double unit = unit_of(parameter, value);
  return unit <= kEdge ? -1 : unit >= 1 - kEdge ? 1 : 0;
}

std::string wider(const SweepParameter& parameter, int edge) {
  if (!parameter.is_range()) {
    const std::string& last = edge < 0 ? parameter.values.front() : parameter.values.back();
    return fmt::format("try values {} {}", edge < 0 ? "below" : "above", last);
  }
  const auto& [low, high] = parameter.limits();
  const double factor = parameter.log ? std::min(10.0, std::sqrt(high / low)) : 0;
  double end = edge > 0 ? high + (high - low) / 2 : low - (high - low) / 2;
  if (parameter.log) end = edge > 0 ? high * factor : low / factor;
  // A range that begins at 0, such as that of dropout, usually ends there.
  if (!parameter.log && edge < 0 && low >= 0 && end < 0) {
    return low == 0 ? "0 may be best" : "extend it to 0";
  }
  return fmt::format("extend it to {:.3g}", end);
}

}  // namespace

std::vector<RankedTrial> rank_trials(Trials& trials) {
  std::vector<RankedTrial> out;
  for (int64_t trial = 0; trial < trials.count(); ++trial) {
    RankedTrial row{.trial = trial};
    for (size_t round = 0; round < trials.rounds().size(); ++round) {
      if (!std::isnan(trials.score(trial, round))) row.round = round;
    }
    std::vector<double> found;
    double loss = 0;
    for (int64_t repeat = 0; repeat < trials.sweep().repeats; ++repeat) {
      const auto& result = trials.result({trial, repeat, row.round});
      if (!result) continue;
      ++row.ended;
      if (result->end() > row.end) {
        row.end = result->end();
        row.exit_code = result->exit_code;
        row.message = result->message;
      }
      const double seconds = whole_seconds(result->figures);
      if (std::isfinite(seconds)) row.seconds += seconds;
      row.steps = std::fmin(row.steps, result->value("steps"));
      loss += result->value("loss");
      const double value = result->value(trials.metric());
      if (std::isfinite(value)) found.push_back(value);
    }
    if (row.ended == 0) continue;
    row.values = *trials.values(trial);
    row.runs = std::ssize(found);
    row.loss = loss / static_cast<double>(row.ended);
    if (row.runs == row.ended) {
      const auto count = static_cast<double>(found.size());
      row.mean = 0;
      for (const double value : found) row.mean += value / count;
      double squares = 0;
      for (const double value : found) squares += (value - row.mean) * (value - row.mean);
      if (found.size() > 1) row.deviation = std::sqrt(squares / (count - 1));
    }
    out.push_back(std::move(row));
  }
  std::ranges::stable_sort(out, [&](const RankedTrial& a, const RankedTrial& b) {
    const bool one = a.has_result(), other = b.has_result();
    if (one != other || !one) return one && !other;
    if (a.round != b.round) return a.round > b.round;
    return trials.smaller_is_better() ? a.mean < b.mean : a.mean > b.mean;
  });
  return out;
}

std::string ranking_table(const Trials& trials, const std::vector<RankedTrial>& ranked,
                          size_t most) {
  const bool rounds = trials.rounds().size() > 1, repeats = trials.sweep().repeats > 1;
  Rows rows{{"rank", "trial", trials.metric()}};
  if (trials.metric() != "loss") rows[0].push_back("loss");
  if (rounds) rows[0].push_back("steps");
  if (repeats) rows[0].push_back("runs");
  rows[0].push_back("time");
  for (const SweepParameter& parameter : trials.sweep().parameters) {
    rows[0].push_back(short_name(trials.sweep(), parameter.key));
  }
  for (size_t i = 0; i < std::min(most, ranked.size()); ++i) {
    const RankedTrial& trial = ranked[i];
    const bool good = trial.has_result();
    std::vector<std::string> row{good ? std::to_string(i + 1) : "-", std::to_string(trial.trial)};
    row.push_back(good ? shown_mean(trial) : shown_end(trial, repeats));
    if (trials.metric() != "loss") row.push_back(good ? fmt::format("{:.4g}", trial.loss) : "-");
    if (rounds) row.push_back(good ? fmt::format("{:.0f}", trial.steps) : "-");
    if (repeats) row.push_back(std::to_string(trial.runs));
    row.push_back(format_time(trial.seconds));
    row.insert(row.end(), trial.values.begin(), trial.values.end());
    rows.push_back(std::move(row));
  }
  std::string out = fmt::format("ranked by {}, {} is better{}\n", trials.metric(),
                                trials.smaller_is_better() ? "smaller" : "greater",
                                rounds ? "; trials that have trained longer come first" : "");
  out += aligned(rows);
  if (ranked.size() > most)
    out += fmt::format("… and {} more in trials.csv\n", ranked.size() - most);
  return out;
}

std::string ranking_csv(const Trials& trials, const std::vector<RankedTrial>& ranked) {
  const bool by_loss = trials.metric() == "loss";
  std::vector<std::string> names{"rank", "trial", trials.metric(), "deviation", "runs"};
  if (!by_loss) names.emplace_back("loss");
  names.insert(names.end(), {"steps", "total_seconds", "exit_code"});
  for (const SweepParameter& parameter : trials.sweep().parameters) {
    names.push_back((contains(names, parameter.key) ? "parameters." : "") + parameter.key);
  }
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ",") + csv_field(name);
  out += "\n";
  for (size_t i = 0; i < ranked.size(); ++i) {
    const RankedTrial& trial = ranked[i];
    out += fmt::format("{},{},{},{},{},{}{},{},{}", trial.has_result() ? std::to_string(i + 1) : "",
                       trial.trial, csv_number(trial.mean), csv_number(trial.deviation), trial.runs,
                       by_loss ? "" : csv_number(trial.loss) + ",", csv_number(trial.steps),
                       csv_number(trial.seconds), trial.exit_code);
    for (const std::string& value : trial.values) out += "," + csv_field(value);
    out += "\n";
  }
  return out;
}

std::vector<std::string> edge_sentences(const Trials& trials,
                                        const std::vector<RankedTrial>& ranked) {
  constexpr size_t kBest = 5, kEnough = 3, kFewest = 10;
  const std::vector<RankedTrial> good = with_result(ranked);
  std::vector<std::string> out;
  if (good.size() < kFewest) return out;
  for (size_t p = 0; p < trials.sweep().parameters.size(); ++p) {
    const SweepParameter& parameter = trials.sweep().parameters[p];
    if (!is_ordered(parameter)) continue;
    for (const int edge : {-1, 1}) {
      const auto count = std::ranges::count_if(
          good.begin(), good.begin() + kBest,
          [&](const RankedTrial& trial) { return edge_of(parameter, trial.values[p]) == edge; });
      // The best trial too, so that a parameter without effect is rarely named.
      if (static_cast<size_t>(count) < kEnough || edge_of(parameter, good[0].values[p]) != edge) {
        continue;
      }
      out.push_back(fmt::format("{} of the best {} trials lie at the {} edge of {}: {}", count,
                                kBest, edge < 0 ? "lower" : "upper",
                                short_name(trials.sweep(), parameter.key), wider(parameter, edge)));
    }
  }
  return out;
}

std::string scientific_table(const Trials& trials, const std::vector<RankedTrial>& ranked) {
  const SweepConfig& sweep = trials.sweep();
  std::vector<size_t> scientific, nuisance;
  for (size_t p = 0; p < sweep.parameters.size(); ++p) {
    (sweep.is_scientific(sweep.parameters[p].key) ? scientific : nuisance).push_back(p);
  }
  if (scientific.empty()) return "";
  Rows rows(1);
  for (const size_t p : scientific) {
    rows[0].push_back(short_name(sweep, sweep.parameters[p].key));
  }
  rows[0].insert(rows[0].end(), {trials.metric(), "trials", "trial"});
  for (const size_t p : nuisance) rows[0].push_back(short_name(sweep, sweep.parameters[p].key));
  // The first trial of each combination is its best.
  const std::vector<RankedTrial> good = with_result(ranked);
  const auto same = [&](const RankedTrial& a, const RankedTrial& b) {
    return std::ranges::all_of(scientific, [&](size_t p) { return a.values[p] == b.values[p]; });
  };
  for (auto trial = good.begin(); trial != good.end(); ++trial) {
    if (std::any_of(good.begin(), trial, [&](const auto& other) { return same(other, *trial); })) {
      continue;
    }
    std::vector<std::string> row;
    for (const size_t p : scientific) row.push_back(trial->values[p]);
    const auto count =
        std::ranges::count_if(good, [&](const auto& other) { return same(other, *trial); });
    row.insert(row.end(),
               {shown_mean(*trial), std::to_string(count), std::to_string(trial->trial)});
    for (const size_t p : nuisance) row.push_back(trial->values[p]);
    rows.push_back(std::move(row));
  }
  return aligned(rows);
}

std::string parameter_plots(const Trials& trials, const std::vector<RankedTrial>& ranked,
                            bool utf8) {
  const std::vector<RankedTrial> good = with_result(ranked);
  if (good.size() < 5) return "";
  std::string out;
  for (size_t p = 0; p < trials.sweep().parameters.size(); ++p) {
    const SweepParameter& parameter = trials.sweep().parameters[p];
    std::vector<double> units, means;
    for (const RankedTrial& trial : good) {
      if (trial.round != good[0].round && trial.round + 1 < trials.rounds().size()) continue;
      units.push_back(unit_of(parameter, trial.values[p]));
      means.push_back(trial.mean);
    }
    if (units.size() < 5) continue;
    const std::string low = value_at(parameter, 0), high = value_at(parameter, 1);
    const std::string plotted = scatter(units, means, trials.smaller_is_better(), {.utf8 = utf8});
    if (plotted.empty()) continue;
    const std::string values =
        parameter.is_range()
            ? fmt::format("from {} to {}{}", low, high, parameter.log ? ", logarithmic" : "")
        : parameter.values.size() <= 8
            ? fmt::format("{}", fmt::join(parameter.values, ", "))
            : fmt::format("{} values from {} to {}", parameter.values.size(), low, high);
    out += fmt::format("{} over {} ({}):\n{}\n", trials.metric(),
                       short_name(trials.sweep(), parameter.key), values, plotted);
  }
  return out;
}

std::vector<std::string> comparison_warnings(const Trials& trials,
                                             const std::vector<RankedTrial>& ranked) {
  std::vector<std::string> out;
  std::vector<double> steps;
  for (const RankedTrial& trial : ranked) {
    if (trial.has_result() && trial.end == TrialEnd::timed_out) steps.push_back(trial.steps);
  }
  if (!steps.empty() && std::ranges::count_if(ranked, &RankedTrial::has_result) > 1) {
    const auto [least, most] = std::ranges::minmax(steps);
    out.push_back(
        fmt::format("training.max_time ended {} of {} trials, at step{}: trials are compared at "
                    "different steps",
                    steps.size(), ranked.size(),
                    least == most ? fmt::format(" {:.0f}", least)
                                  : fmt::format("s {:.0f} to {:.0f}", least, most)));
  }
  const bool data_varies = std::ranges::any_of(
      trials.sweep().parameters,
      [](const SweepParameter& parameter) { return (parameter.key + ".").starts_with("data."); });
  std::string first, first_trial;
  std::vector<std::string> others;
  for (int64_t trial = 0; !data_varies && trial < trials.count(); ++trial) {
    const std::string name = std::to_string(trial);
    for (int64_t repeat = 0; repeat < trials.sweep().repeats; ++repeat) {
      if (!trials.result({trial, repeat, 0})) continue;
      for (const RunAttempt& attempt : read_run(trials.folder_of(trial, repeat) / "run").attempts) {
        if (attempt.data.empty()) continue;
        if (first.empty()) first = attempt.data, first_trial = name;
        if (attempt.data != first && !contains(others, name)) others.push_back(name);
      }
    }
  }
  if (!others.empty()) {
    out.push_back(fmt::format(
        "the training data has changed during the sweep: trial{} {} had other data than "
        "trial {}, so that the results cannot be compared",
        others.size() > 1 ? "s" : "", some_names(others, 10), first_trial));
  }
  return out;
}

std::string curve_sentence(const Trials& trials, int64_t trial) {
  const RunCurves curves = read_curves(trials.folder_of(trial, 0) / "run");
  const bool evaluates = curves.eval.rows > 0;
  const std::string judged =
      evaluates ? judge_curve(curves.eval.column("step"), curves.eval.column("eval_loss"), true)
                : judge_curve(curves.train.column("step"), curves.train.column("loss"), false);
  return judged.empty() ? "" : (evaluates ? "evaluation loss " : "training loss ") + judged;
}

}  // namespace dltrain
