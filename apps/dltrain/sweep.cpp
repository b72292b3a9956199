// dltrain sweep: the trials of an experiment with a section `sweep`, and what they show.
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <set>

#include "base/encodings.h"
#include "base/owned_files.h"
#include "base/utf8.h"
#include "config/diff.h"
#include "config/suggest.h"
#include "dltrain/commands.h"
#include "nn/metrics.h"
#include "run/run_record.h"
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

// The folder that is given, that of a sweep whose own config.yaml is given, or the default.
std::string folder_of_sweep(const SweepArguments& arguments, const std::string& name) {
  const ConfigOptions& config = arguments.config;
  if (!arguments.folder.empty()) return arguments.folder;
  if (config.files.size() == 1 && config.also_files.empty() && config.name.empty()) {
    const std::filesystem::path file = std::filesystem::path(".") / config.files[0];
    if (file.filename() == "config.yaml" && is_sweep(file.parent_path())) {
      return file.parent_path().lexically_normal().string();
    }
  }
  return "runs/sweep-" + name;
}

std::string settings_text(const SweepConfig& sweep, const std::vector<std::string>& values) {
  std::string out;
  for (size_t p = 0; p < values.size(); ++p) {
    const std::string name = short_name(sweep, sweep.parameters[p].key);
    out += fmt::format("{}{}={}", p > 0 ? ", " : "", name, values[p]);
  }
  return out;
}

// Refuses a parameter that sets the key of another one too, whose value would not be used.
void check_nesting(const SweepConfig& sweep) {
  Diagnostics problems;
  for (size_t outer = 0; outer < sweep.parameters.size(); ++outer) {
    const SweepParameter& section = sweep.parameters[outer];
    for (size_t inner = 0; inner < sweep.parameters.size(); ++inner) {
      const std::string& key = sweep.parameters[inner].key;
      if (!key.starts_with(section.key + ".")) continue;
      const std::string own = key.substr(section.key.size() + 1);
      const bool sets = std::ranges::any_of(section.values, [&](const std::string& value) {
        return std::ranges::any_of(keys_of_dump(value),
                                   [&](const auto& k) { return k.path == own; });
      });
      if (inner > outer && !sets) continue;
      problems.add(section.location,
                   "sweep.parameters: {} contains {}, whose value it would replace; vary {}.type "
                   "or another key in it, or give {} first and leave {} out of its values",
                   section.key, key, section.key, section.key, own);
    }
  }
  problems.throw_if_any();
}

// What to add to an error about a range of real numbers for a key that is an integer.
std::string integer_hint(const SweepParameter& parameter, const std::string& error) {
  const bool applies = parameter.is_range() && !parameter.integer &&
                       error.starts_with("expected an integer") &&
                       error.find(" " + parameter.key + ",") != error.npos;
  return applies ? fmt::format("; add integer: true to the range of {}", parameter.key) : "";
}

// Reports values that are invalid, all at once and at their places, then the first combination of
// valid ones that is invalid. A search that learns may take any combination after its first trials:
// of those all are checked, with the first values of ranges, unless they are too many.
void check_trials(const ConfigOptions& options, const SweepConfig& sweep) {
  constexpr int64_t kMostChecked = 2000;
  const auto load = [&](const std::vector<std::string>& values, size_t only) {
    std::vector<std::string> sets{"sweep=null"};
    for (size_t p = 0; p < values.size(); ++p) {
      if (only == p || only == values.size()) {
        sets.push_back(sweep.parameters[p].key + "=" + values[p]);
      }
    }
    const Experiment experiment = options.load(sets);
    for (const DatasetConfig* split : {experiment.data.train.get(), experiment.data.eval.get()}) {
      if (split != nullptr) DataConfig::refuse_missing(*split);
    }
  };
  load({}, 0);
  const std::vector<std::string> first = values_of_trial(sweep, 0);
  Diagnostics problems;
  for (size_t p = 0; p < first.size(); ++p) {
    const SweepParameter& parameter = sweep.parameters[p];
    std::vector<std::string> candidates = parameter.values;
    if (parameter.is_range()) {
      candidates = {value_at(parameter, 0), value_at(parameter, 1), first[p]};
    }
    for (const std::string& candidate : candidates) {
      std::vector<std::string> values = first;
      values[p] = candidate;
      try {
        load(values, p);
      } catch (const ConfigError& error) {
        // Some keys are valid only together, such as optimizer.type and optimizer.momentum.
        try {
          load(values, values.size());
        } catch (const ConfigError&) {
          const std::string& message = error.diagnostics().all().front().message;
          problems.add(parameter.location, "{}: {}: {}{}", parameter.key, values[p], message,
                       integer_hint(parameter, message));
        }
      }
    }
  }
  problems.throw_if_any();
  const auto check = [&](const std::string& what, const std::vector<std::string>& values) {
    try {
      load(values, values.size());
    } catch (const ConfigError& error) {
      std::string hint;
      for (const SweepParameter& parameter : sweep.parameters) {
        hint += integer_hint(parameter, error.diagnostics().all().front().message);
      }
      fail(ExitCode::usage, "{} is no valid experiment ({}){}:\n{}", what,
           settings_text(sweep, values), hint, error.what());
    }
  };
  int64_t trial = 0, combinations = 1;
  const int64_t trials = std::min(kMostChecked, trial_count(sweep));
  for (; trial < trials && needed_trials(sweep, trial) == 0; ++trial) {
    check(fmt::format("trial {}", trial), values_of_trial(sweep, trial));
  }
  if (trial == trials) return;
  for (const SweepParameter& parameter : sweep.parameters) {
    if (parameter.is_range()) continue;
    combinations *= static_cast<int64_t>(parameter.values.size());
    if (combinations > kMostChecked) return;
  }
  for (int64_t i = 0; i < combinations; ++i) {
    std::vector<std::string> values = first;
    auto left = static_cast<size_t>(i);
    for (size_t p = 0; p < values.size(); ++p) {
      const std::vector<std::string>& choices = sweep.parameters[p].values;
      if (choices.empty()) continue;  // a range
      values[p] = choices[left % choices.size()];
      left /= choices.size();
    }
    check("a trial that the search may choose", values);
  }
}

// Reports a metric that the runs will not have, before anything is trained.
void check_metric(const ConfigOptions& options, const Trials& trials) {
  const std::string& metric = trials.metric();
  const bool of_experts =
      metric.find("expert") != metric.npos || metric.find("router") != metric.npos;
  if (of_experts) return;
  std::vector<std::string> sets = one_rank_overrides();
  sets.push_back("sweep=null");
  Experiment experiment = options.load(sets);
  accumulate_on_one_rank(experiment.training);
  const Session session = open_session(experiment, {.engines = engines()});
  std::vector<std::string> results{"loss"};  // what people rank by
  for (const StepMetric& of_step : session.executor->training().metrics) {
    if (of_step.label != "loss") results.push_back(of_step.label);
  }
  if (session.has_evaluation()) {
    results.push_back("eval_loss");
    results.push_back("best_eval_" + experiment.checkpoint.metric.value_or("loss"));
    for (const std::string& name : metric_labels(session.metrics)) {
      results.push_back("eval_" + name);
    }
  }
  const std::vector<std::string> others{"seconds",        "training_seconds", "step_ms_median",
                                        "step_ms_min",    "peak_rss_mib",     "arena_bytes",
                                        "flops_per_step", "first_step_ms",    "data_wait_ms"};
  if (contains(results, metric) || contains(others, metric)) return;
  if (metric.starts_with("best_eval_") && contains(results, metric.substr(5))) {
    fail_at(trials.sweep(), "metric", "the runs will have no {}; add checkpoint.metric: {}", metric,
            metric.substr(10));
  }
  const std::string near = nearest_name(metric, results);
  fail_at(trials.sweep(), "metric", "the runs will have no {}; {}", metric,
          !near.empty() ? "did you mean " + near + "?"
                        : "their results are " + join_names(results) +
                              (session.has_evaluation() ? "" : ": there is no evaluation data"));
}

// Warns of what a sweep would do that its author hardly wants, before it is done.
void warn_of_plan(Trials& trials) {
  const SweepConfig& sweep = trials.sweep();
  if (sweep.search == SearchKind::halving && trials.rounds().size() == 1) {
    print_message(fmt::format(
        "warning: halving has one round only: all {} trials train all steps; {}", trials.count(),
        sweep.min_steps ? "a smaller sweep.min_steps or more trials make rounds"
                        : "more trials or steps make rounds"));
  }
  if (!sweep.metric && trials.metric() == "loss") {
    print_message(
        "warning: there is no evaluation data (data.eval, data.eval_fraction): the trials are "
        "ranked by the training loss of their last steps, which is noisy and shows no overfitting");
  }
  std::set<std::vector<std::string>> different;
  int64_t known = 0;
  for (; known < trials.count(); ++known) {
    const auto values = trials.values(known);
    if (!values) break;
    different.insert(*values);
  }
  if (const int64_t again = known - std::ssize(different); again > 0) {
    print_message(fmt::format(
        "warning: {} of {} trials have the values of another one; search: grid tries each once",
        again, known));
  }
}

void print_rounds(Trials& trials) {
  const SweepConfig& sweep = trials.sweep();
  const std::vector<SweepRound>& rounds = trials.rounds();
  const bool halves = sweep.search == SearchKind::halving;
  for (size_t round = 0; halves && round < rounds.size(); ++round) {
    fmt::print("round {}: {} trials train {:.3g} % of the steps\n", round + 1, rounds[round].trials,
               100 * rounds[round].share);
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

struct RunCount {
  int64_t done = 0, all = 0;
};

// Counts the runs that have ended; those of each round of halving are runs of their own.
RunCount count_runs(const Trials& trials) {
  RunCount out;
  for (size_t round = 0; round < trials.rounds().size(); ++round) {
    out.all += trials.rounds()[round].trials * trials.sweep().repeats;
    for (int64_t trial = 0; trial < trials.count(); ++trial) {
      for (int64_t repeat = 0; repeat < trials.sweep().repeats; ++repeat) {
        if (trials.result({trial, repeat, round})) ++out.done;
      }
    }
  }
  return out;
}

// One line for each run that has ended.
class Announcer {
 public:
  explicit Announcer(Trials& trials) : trials_(trials) {
    for (const RankedTrial& trial : rank_trials(trials)) note(trial.trial, trial.round);
  }

  void operator()(const SweepJob& job, const TrialResult& result) {
    const SweepConfig& sweep = trials_.sweep();
    std::string line = fmt::format("trial {}", job.trial);
    if (sweep.repeats > 1) line += fmt::format(", repeat {}", job.repeat + 1);
    line += fmt::format(" ({}): ", settings_text(sweep, *trials_.values(job.trial)));
    const double value = result.value(trials_.metric());
    if (std::isfinite(value)) {
      line += fmt::format("{} {:.5g}", trials_.metric(), value);
      if (trials_.rounds().size() > 1 || result.timed_out) {
        line += fmt::format(" after {:.0f} steps", result.value("steps"));
      }
      const double seconds = whole_seconds(result.figures);
      if (std::isfinite(seconds)) line += " in " + format_time(seconds);
      if (result.timed_out) line += ", ended by training.max_time";
      if (note(job.trial, job.round)) {
        line += sweep.repeats > 1 ? ", the best mean so far" : ", the best so far";
      }
    } else {
      line += printable(result.message);
    }
    const RunCount runs = count_runs(trials_);
    console().clear_status();
    fmt::print("[{}/{}] {}\n", runs.done, runs.all, line);
    // The sweep goes on when the reader of its output has ended, like a training.
    if (std::fflush(stdout) != 0 && errno == EPIPE &&
        std::freopen("/dev/null", "w", stdout) == nullptr) {
      fail_storage("/dev/null", "open", errno);
    }
  }

 private:
  // Returns whether the trial, all of whose repeats have ended, is the best so far.
  bool note(int64_t trial, size_t round) {
    const double score = trials_.score(trial, round);
    const bool best = score < best_;  // never for NaN: a repeat is missing
    if (best) best_ = score;
    return best;
  }

  Trials& trials_;
  double best_ = INFINITY;
};

std::string quoted_path(const std::filesystem::path& path) {
  return quoted_for_shell(path.string());
}

// Prints what the sweep has shown. Returns the exit code of the first trial that failed, rank if a
// signal has ended it, that of the first trial if none has a result, or ok.
ExitCode conclude(Trials& trials, const ConfigOptions& options, bool rank_only) {
  std::signal(SIGPIPE, SIG_DFL);  // the training of the sweep has ignored it
  const std::vector<RankedTrial> ranked = rank_trials(trials);
  const bool utf8 = console().utf8();
  if (!rank_only) trials.write_ranking(ranking_csv(trials, ranked));
  fmt::print("\n{}", ranking_table(trials, ranked, 10));
  if (const std::string table = scientific_table(trials, ranked); !table.empty()) {
    fmt::print("\nthe best trial for each scientific value:\n{}", table);
  }
  if (const std::string plots = parameter_plots(trials, ranked, utf8); !plots.empty()) {
    fmt::print("\n{}", plots);
  }
  fmt::print("\n");
  for (const std::string& sentence : edge_sentences(trials, ranked)) fmt::print("{}\n", sentence);
  const bool any = !ranked.empty() && ranked[0].has_result();
  for (size_t i = 0; any && i < std::min<size_t>(3, ranked.size()); ++i) {
    if (!ranked[i].has_result()) break;
    const std::string curve = curve_sentence(trials, ranked[i].trial);
    if (!curve.empty()) fmt::print("trial {}: {}\n", ranked[i].trial, curve);
  }
  if (any) {
    std::vector<std::string> words = options.arguments();
    if (!options.name.empty()) words.insert(words.end(), {"--name", options.name});
    if (options.seed) words.insert(words.end(), {"--seed", std::to_string(*options.seed)});
    words.insert(words.end(), {"-s", "sweep=null"});
    if (const int64_t ranks = trials.sweep().ranks; ranks > 1) {
      words.insert(words.end(), {"--nproc-per-node", std::to_string(ranks)});
    }
    for (size_t p = 0; p < ranked[0].values.size(); ++p) {
      const std::string& key = trials.sweep().parameters[p].key;
      words.insert(words.end(), {"-s", key + "=" + ranked[0].values[p]});
    }
    std::string command;
    for (const std::string& word : words) command += " " + quoted_for_shell(word);
    fmt::print("the best is trial {}, {}; to train it again: dltrain{}\n", ranked[0].trial,
               quoted_path(trials.folder_of(ranked[0].trial, 0) / "run"), command);
  }
  const RunCount runs = count_runs(trials);
  if (rank_only && !trials.done() && runs.done < runs.all) {
    fmt::print(
        "the sweep is unfinished: {} of {} runs have ended; the same command without --rank trains "
        "the others\n",
        runs.done, runs.all);
  }
  const std::filesystem::path csv = trials.folder() / kRankingFile;
  if (std::filesystem::exists(csv)) fmt::print("all trials: {}; ", quoted_path(csv));
  fmt::print("curves: dltrain report {}\n", quoted_path(trials.folder()));
  for (const std::string& text : comparison_warnings(trials, ranked)) {
    print_message("warning: " + text);
  }
  const auto has_failed = [](const RankedTrial& trial) { return trial.end == TrialEnd::failed; };
  const auto first = std::ranges::find_if(ranked, has_failed);
  if (first == ranked.end()) {
    if (any || ranked.empty()) return ExitCode::ok;
    const bool diverged = std::ranges::all_of(
        ranked, [](const RankedTrial& trial) { return trial.end == TrialEnd::diverged; });
    print_message(fmt::format("{}; trial {}: {}",
                              diverged ? fmt::format("all {} trials diverged", ranked.size())
                                       : "no trial has a result for " + trials.metric(),
                              ranked[0].trial, ranked[0].message));
    return static_cast<ExitCode>(ranked[0].exit_code);
  }
  print_message(fmt::format("{} of {} trials failed; the same command repeats them. Trial {}: {}",
                            std::ranges::count_if(ranked, has_failed), ranked.size(), first->trial,
                            first->message));
  return first->exit_code < 128 ? static_cast<ExitCode>(first->exit_code) : ExitCode::rank;
}

ExitCode run_sweep(const SweepArguments& arguments) {
  const Experiment experiment = arguments.config.load();
  if (!experiment.sweep) {
    fail(ExitCode::usage,
         "the experiment has no section sweep, such as\n"
         "  sweep: {{trials: 20, parameters: {{optimizer.learning_rate: {{log: [1e-4, 1e-1]}}}}}}");
  }
  const SweepConfig& sweep = *experiment.sweep;
  if (experiment.seed > INT64_MAX - (sweep.repeats - 1)) {
    fail_at(sweep, "repeats",
            "the seeds from {} on do not suffice for {} repeats; use a smaller seed",
            experiment.seed, sweep.repeats);
  }
  const std::string folder = folder_of_sweep(arguments, experiment.name);
  if (arguments.rank_only && !lists_file(folder, kRankingFile)) {
    fail(ExitCode::usage, "{} is not the folder of a sweep", folder);
  }
  check_nesting(sweep);
  check_trials(arguments.config, sweep);
  declare_output(folder);
  for (const DatasetConfig* split : {experiment.data.train.get(), experiment.data.eval.get()}) {
    if (split != nullptr && !split->sample_folder().empty()) {
      check_no_output_in(split->sample_folder());
    }
  }
  const bool writable = !arguments.dry_run && !arguments.rank_only;
  // Nothing is written for a metric that the runs will not have.
  if (const Trials planned(experiment, folder, false); !writable || !planned.any_stored()) {
    check_metric(arguments.config, planned);
  }
  Trials trials(experiment, folder, writable);
  if (trials.count() > trial_count(sweep)) {
    print_message(fmt::format("{} has {} trials, more than the {} of the file: all are ranked",
                              folder, trials.count(), trial_count(sweep)));
  }
  if (!arguments.rank_only) warn_of_plan(trials);
  if (arguments.dry_run) {
    print_rounds(trials);
    return ExitCode::ok;
  }
  if (!arguments.rank_only) {
    Announcer announce(trials);
    const ExitCode code = train_trials(
        trials, {.arguments = arguments.config.arguments(),
                 .name = experiment.name,
                 .seed = experiment.seed,
                 .prometheus = experiment.logging.prometheus,
                 .on_result = [&](const auto& job, const auto& result) { announce(job, result); }});
    if (code != ExitCode::ok) {
      print_message(
          "the sweep was stopped; the same command continues it, and --rank ranks what there is");
      return code;
    }
  }
  return conclude(trials, arguments.config, arguments.rank_only);
}

}  // namespace

CommandBody add_sweep(CLI::App& command) {
  auto arguments = std::make_shared<SweepArguments>();
  arguments->config.add_to(command, ConfigOptions::Use::training);
  add_text(
      command, "--output-dir", arguments->folder,
      "The folder of the sweep (default: runs/sweep-<name>); the same command continues a sweep");
  command.add_flag("--dry-run", arguments->dry_run, "Print the trials and stop");
  command.add_flag("--rank", arguments->rank_only,
                   "Rank the trials that have ended, and train none");
  return [arguments] { return run_sweep(*arguments); };
}

}  // namespace dltrain
