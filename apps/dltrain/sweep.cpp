// dltrain sweep: the trials of an experiment with a section `sweep`, and what they show.
#include <cstdio>

#include "base/utf8.h"
#include "config/suggest.h"
#include "dltrain/commands.h"
#include "nn/metrics.h"
#include "sweep/parameter.h"
#include "sweep/ranking.h"
#include "sweep/runner.h"
#include "sweep/search.h"
#include "telemetry/console.h"
#include "telemetry/progress.h"

namespace dltrain {
namespace {

struct SweepArguments {
  ConfigOptions config;
  std::string folder;
  bool dry_run = false, rank_only = false;
};

std::string settings_text(const SweepConfig& sweep, const std::vector<std::string>& values) {
  std::string out;
  for (size_t p = 0; p < values.size(); ++p) {
    const std::string name = short_name(sweep, sweep.parameters[p].key);
    out += fmt::format("{}{}={}", p > 0 ? ", " : "", name, values[p]);
  }
  return out;
}

// Reports the first trial whose experiment is invalid. The values of searches that learn are not
// known before: each end of a range, and each value, is tried with those of the first trial.
void check_trials(const ConfigOptions& options, const SweepConfig& sweep) {
  constexpr int64_t kMostChecked = 2000;
  const auto check = [&](const std::vector<std::string>& values) {
    std::vector<std::string> sets{"sweep=null"};
    for (size_t p = 0; p < values.size(); ++p) {
      sets.push_back(sweep.parameters[p].key + "=" + values[p]);
    }
    try {
      options.load(sets);
    } catch (const ConfigError& error) {
      fail(ExitCode::usage, "a trial is no valid experiment ({}):\n{}",
           settings_text(sweep, values), error.what());
    }
  };
  if (sweep.search != SearchKind::tpe) {
    for (int64_t i = 0; i < std::min(kMostChecked, trial_count(sweep)); ++i) {
      check(values_of_trial(sweep, i));
    }
    return;
  }
  const std::vector<std::string> first = values_of_trial(sweep, 0);
  for (size_t p = 0; p < first.size(); ++p) {
    const SweepParameter& parameter = sweep.parameters[p];
    const size_t count = parameter.is_range() ? 2 : parameter.values.size();
    for (size_t i = 0; i < count; ++i) {
      std::vector<std::string> values = first;
      values[p] =
          parameter.is_range() ? value_at(parameter, static_cast<double>(i)) : parameter.values[i];
      check(values);
    }
  }
}

// Reports a metric that the evaluations do not have, before anything is trained. Other results are
// known after the first run.
void check_metric(const ConfigOptions& options, Trials& trials) {
  const std::string& metric = trials.metric();
  const bool of_experts =
      metric.find("expert") != metric.npos || metric.find("router") != metric.npos;
  if (metric.find("eval_") == metric.npos || of_experts || trials.any_stored()) return;
  std::vector<std::string> sets = one_rank_overrides();
  sets.push_back("sweep=null");
  Experiment experiment = options.load(sets);
  std::vector<std::string> known;
  if (experiment.data.eval != nullptr || experiment.data.eval_fraction) {
    const Session session = open_session(experiment, {.engines = engines()});
    known = {"eval_loss", "best_eval_" + experiment.checkpoint.metric.value_or("loss")};
    for (const std::string& name : metric_labels(session.metrics)) known.push_back("eval_" + name);
  }
  if (contains(known, metric)) return;
  const std::string near = nearest_name(metric, known);
  fail_at(trials.sweep(), "metric", "the runs will have no {}; {}", metric,
          known.empty()   ? "there is no evaluation data"
          : !near.empty() ? "did you mean " + near + "?"
                          : "the results of evaluations are " + join_names(known));
}

void print_plan(Trials& trials) {
  const SweepConfig& sweep = trials.sweep();
  for (size_t round = 0; round < trials.rounds().size(); ++round) {
    if (trials.rounds().size() == 1) break;
    fmt::print("round {}: {} trials train {:.3g} % of the steps\n", round + 1,
               trials.rounds()[round].trials, 100 * trials.rounds()[round].share);
  }
  for (int64_t trial = 0; trial < trials.count(); ++trial) {
    const auto values = trials.values(trial);
    if (!values) {
      fmt::print("the values of trials {} to {} follow from the results before them\n", trial,
                 trials.count() - 1);
      return;
    }
    fmt::print("trial {}: {}\n", trial, settings_text(sweep, *values));
  }
}

// One line for each run that has ended.
class Announcer {
 public:
  explicit Announcer(Trials& trials) : trials_(trials) {}

  void operator()(const SweepJob& job, const TrialResult& result) {
    const SweepConfig& sweep = trials_.sweep();
    std::string line = fmt::format("trial {}", job.trial);
    if (sweep.repeats > 1) line += fmt::format(", repeat {}", job.repeat + 1);
    line += fmt::format(" ({}): ", settings_text(sweep, *trials_.values(job.trial)));
    const double value = result.value(trials_.metric());
    if (result.exit_code == 0) {
      line += fmt::format("{} {:.5g}", trials_.metric(), value);
      if (trials_.rounds().size() > 1) {
        line += fmt::format(" after {:.0f} steps", result.value("steps"));
      }
      const double seconds = result.value("training_seconds");
      if (std::isfinite(seconds)) line += " in " + format_time(seconds);
      const double better = trials_.smaller_is_better() ? value : -value;
      if (!(best_ <= better)) {
        best_ = better;
        line += ", the best so far";
      }
    } else {
      line += printable(result.message);
    }
    int64_t done = 0, all = 0;
    for (size_t round = 0; round < trials_.rounds().size(); ++round) {
      all += trials_.rounds()[round].trials * sweep.repeats;
      for (int64_t trial = 0; trial < trials_.count(); ++trial) {
        for (int64_t repeat = 0; repeat < sweep.repeats; ++repeat) {
          if (trials_.result({trial, repeat, round})) ++done;
        }
      }
    }
    fmt::print("[{}/{}] {}\n", done, all, line);
    std::fflush(stdout);
  }

 private:
  Trials& trials_;
  double best_ = NAN;
};

// Prints what the sweep has shown. Returns the exit code of the first run that failed, or ok.
ExitCode conclude(Trials& trials, const ConfigOptions& options) {
  const std::vector<RankedTrial> ranked = rank_trials(trials);
  const bool utf8 = console().utf8();
  trials.write_ranking(ranking_csv(trials, ranked));
  fmt::print("\n{}", ranking_table(trials, ranked, 10));
  if (const std::string table = scientific_table(trials, ranked); !table.empty()) {
    fmt::print("\nthe best trial for each scientific value:\n{}", table);
  }
  if (const std::string plots = parameter_plots(trials, ranked, utf8); !plots.empty()) {
    fmt::print("\n{}", plots);
  }
  fmt::print("\n");
  for (const std::string& sentence : edge_sentences(trials, ranked)) fmt::print("{}\n", sentence);
  const bool any = !ranked.empty() && std::isfinite(ranked[0].mean);
  for (size_t i = 0; any && i < std::min<size_t>(3, ranked.size()); ++i) {
    if (!std::isfinite(ranked[i].mean)) break;
    const std::string curve = curve_sentence(trials, ranked[i].trial);
    if (!curve.empty()) fmt::print("trial {}: {}\n", ranked[i].trial, curve);
  }
  if (any) {
    std::string sets;
    for (size_t p = 0; p < ranked[0].values.size(); ++p) {
      const std::string set = trials.sweep().parameters[p].key + "=" + ranked[0].values[p];
      sets +=
          " -s " + (set.find_first_of(" []{}'\"*?$&;|<>()") == set.npos ? set : "'" + set + "'");
    }
    fmt::print("the best is trial {}, {}; to train it again: dltrain{} -s sweep=null{}\n",
               ranked[0].trial, (trials.folder_of(ranked[0].trial, 0) / "run").string(),
               options.files.empty() ? "" : " " + fmt::format("{}", fmt::join(options.files, " ")),
               sets);
  }
  fmt::print("all trials: {}; curves: dltrain report {}\n",
             (trials.folder() / kRankingFile).string(), trials.folder().string());
  for (const RankedTrial& trial : ranked) {
    if (trial.exit_code == 0 || trial.exit_code == static_cast<int>(ExitCode::diverged)) continue;
    const auto failed = std::ranges::count_if(ranked, [](const RankedTrial& other) {
      return other.exit_code != 0 && other.exit_code != static_cast<int>(ExitCode::diverged);
    });
    print_message(fmt::format("{} of {} trials failed; the same command repeats them. Trial {}: {}",
                              failed, ranked.size(), trial.trial, trial.message));
    return trial.exit_code < 128 ? static_cast<ExitCode>(trial.exit_code) : ExitCode::internal;
  }
  return ExitCode::ok;
}

ExitCode run_sweep(const SweepArguments& arguments) {
  const Experiment experiment = arguments.config.load();
  if (!experiment.sweep) {
    fail(ExitCode::usage,
         "the experiment has no section sweep, such as\n"
         "  sweep: {{trials: 20, parameters: {{optimizer.learning_rate: {{log: [1e-4, 1e-1]}}}}}}");
  }
  check_trials(arguments.config, *experiment.sweep);
  const std::string folder =
      arguments.folder.empty() ? "runs/sweep-" + experiment.name : arguments.folder;
  Trials trials(experiment, folder, !arguments.dry_run);
  if (arguments.dry_run) {
    print_plan(trials);
    return ExitCode::ok;
  }
  if (!arguments.rank_only) {
    check_metric(arguments.config, trials);
    Announcer announce(trials);
    const ExitCode code = train_trials(
        trials, {.arguments = arguments.config.arguments(),
                 .name = experiment.name,
                 .seed = experiment.seed,
                 .on_result = [&](const auto& job, const auto& result) { announce(job, result); }});
    if (code != ExitCode::ok) {
      print_message("the sweep was stopped; the same command continues it");
      return code;
    }
  }
  return conclude(trials, arguments.config);
}

}  // namespace

CommandBody add_sweep(CLI::App& command) {
  auto arguments = std::make_shared<SweepArguments>();
  arguments->config.add_to(command);
  add_text(
      command, "--output-dir", arguments->folder,
      "The folder of the sweep (default: runs/sweep-<name>); the same command continues a sweep");
  command.add_flag("--dry-run", arguments->dry_run, "Print the trials and stop");
  command.add_flag("--rank", arguments->rank_only,
                   "Rank the trials that have ended, and train none");
  return [arguments] { return run_sweep(*arguments); };
}

}  // namespace dltrain
