// dltrain train: one run, or the start of several ranks of it.
#include <cstdio>
#include <filesystem>
#include <functional>

#include <unistd.h>

#include "base/stop.h"
#include "checkpoint/run_folder.h"
#include "config/dump.h"
#include "dltrain/commands.h"
#include "dltrain/new_data.h"
#include "dltrain/ranks.h"
#include "launch/signal_source.h"
#include "run/resume.h"
#include "run/run.h"
#include "telemetry/log.h"

namespace dltrain {
namespace {

struct TrainOptions {
  ConfigOptions config;
  RunOptions run;
  ResumeChoice own;  // the checkpoint whose configuration is used, if any
  std::string folder, result, ranks = "1";
  bool dry_run = false, print_config = false;
};

// Checks the options that do not depend on the configuration.
void check_options(const TrainOptions& options) {
  log_level_from_name(options.run.log_level);
  stop_at(options.run.stop_at, 1);
  if (options.run.overwrite && options.run.resume == "auto") {
    fail(ExitCode::usage,
         "--overwrite discards the run that --resume auto continues; give one of them");
  }
  if (!options.result.empty()) {
    const auto parent = std::filesystem::absolute(options.result).parent_path();
    if (access(parent.c_str(), W_OK) != 0) {
      fail(ExitCode::storage, "--result {}: cannot write to {}", options.result, parent.string());
    }
  }
}

// Uses the configuration and the folder of the run that is resumed.
void take_run_configuration(TrainOptions& options) {
  const std::string& resume = options.run.resume;
  const bool here = resume == "auto" && !options.folder.empty();
  if (!here && (resume == "auto" || resume == "never")) return;
  const ResumeChoice choice =
      here ? choose_resume(options.folder, resume, Verify::when_loaded).value_or(ResumeChoice())
           : find_checkpoint(resume, Verify::when_loaded);
  if (choice.checkpoint.empty()) return;
  options.config.files = {(choice.checkpoint / "config.yaml").string()};
  options.own = choice;
  options.own.kept.reset();
  if (options.folder.empty() && options.config.name.empty()) {
    const std::filesystem::path run = run_of(choice.checkpoint);
    if (!is_inside(choice.checkpoint, run / "checkpoints")) {
      fail(ExitCode::usage,
           "{} lies in no run folder; choose the folder to write to with --name NAME or "
           "--output-dir",
           choice.checkpoint.string());
    }
    options.folder = run.string();
  }
}

// Returns the step of the newest checkpoint in the folder of a run; 0: none.
int64_t saved_step(const std::filesystem::path& folder) {
  try {
    const auto choice = choose_resume(folder, "auto", Verify::when_loaded);
    return choice ? choice->state.step : 0;
  } catch (const Error&) {  // the next attempt reports it
    return 0;
  }
}

// Runs a rank that `dltrain launch` has started, or one of several.
ExitCode run_rank(const RankEnvironment& environment, Experiment& experiment,
                  const LoadExperiment& load, RunOptions& run) {
  return run_as_rank(environment, experiment.parallelism, [&](const World& world) {
    run.ranks = ranks_of(world);
    run.resuming = environment.run_has_begun;
    run.layout = choose_layout(experiment, load, run.ranks);
    return run_training(experiment, run);
  });
}

// `ranks`: number of ranks, 0 if unknown before they start. `start`: starts them.
ExitCode run_train(TrainOptions& options, int ranks, const StartRanks& start) {
  // A launcher that is a task of srun or mpirun (one per node) is no rank.
  const RankEnvironment environment =
      start ? RankEnvironment() : rank_environment(process_environment());
  check_options(options);
  // A run that has begun may have removed this checkpoint.
  if (!environment.run_has_begun) check_resume_path(options.run.resume);
  // From here on, signals end the run with a checkpoint, or the launcher handles them.
  if (start) {
    end_on_interruption();
  } else if (!options.dry_run && !options.print_config) {
    install_stop_handlers();
  }
  if (options.config.empty()) take_run_configuration(options);
  const std::string& resume = options.run.resume;
  const bool again = environment.run_has_begun;
  const auto own_folder = [&](const Experiment& experiment) {
    return options.folder.empty() ? "runs/" + experiment.name : options.folder;
  };
  const LoadExperiment load = [&](const std::vector<std::string>& extra) {
    std::function<void(ConfigNode&)> change;
    if (!options.own.checkpoint.empty()) {
      change = [&](ConfigNode& tree) { use_kept_tokenizer(tree, options.own); };
    }
    Experiment out = options.config.load(extra, change);
    if (resume != "never" || again) {
      keep_saved_defaults(out, resume == "auto" || again ? own_folder(out) : resume,
                          start ? ranks : std::max(1, environment.world_size));
    }
    return out;
  };
  Experiment experiment = load({});
  if (experiment.sweep) {
    fail_at(*experiment.sweep, "",
            "the section sweep is for `dltrain sweep`; to train the experiment itself, add -s "
            "sweep=null");
  }
  if (options.print_config) {
    fmt::print("{}", dump_config(experiment));
    return ExitCode::ok;
  }
  RunOptions run = options.run;
  run.engines = engines();
  run.command = command_line();
  run.folder = options.folder;
  run.result = options.result;
  if (options.dry_run) {
    if (start && ranks == 0) {
      fail(ExitCode::usage,
           "--dry-run does not know the number of ranks on several nodes; use `dltrain plan "
           "--world N`");
    }
    const int world = std::max(ranks, environment.world_size);
    const int per_node = environment.distributed() ? environment.local_world_size : world;
    const std::string layout =
        choose_layout(experiment, load, {.world = world, .ranks_per_node = per_node});
    fmt::print("{}\n", dump_config(experiment));
    if (!layout.empty()) fmt::print("{}\n", layout);
    return print_plan(experiment,
                      {.world = world,
                       .ranks_per_node = per_node,
                       .unconnected = !environment.distributed(),
                       .on_this_machine = world == per_node},
                      [&](Session& session) { fmt::print("{}\n", check_run(session, run)); });
  }
  if (start) {
    // Errors in the file are reported once here instead of by every rank.
    if (ranks > 0 && experiment.parallelism.layout == LayoutChoice::given) {
      check_ranks(experiment, ranks);
      rank_mesh(experiment, ranks, ranks);
    }
    return static_cast<ExitCode>(
        start({.timeout = std::chrono::duration<double>(experiment.parallelism.timeout),
               .saved_step = [folder = own_folder(experiment)] { return saved_step(folder); }}));
  }
  if (!environment.has_store()) return run_training(experiment, run);
  return run_rank(environment, experiment, load, run);
}

std::shared_ptr<TrainOptions> add_options(CLI::App& command) {
  auto options = std::make_shared<TrainOptions>();
  options->config.add_to(command, ConfigOptions::Use::training);
  add_text(command, "--output-dir", options->folder, "The run folder (default: runs/<name>)");
  command
      .add_option(
          "--resume", options->run.resume,
          "auto: continue from the newest checkpoint of the run folder, or start; never; or a "
          "checkpoint or run folder, whose configuration is used unless one is given")
      ->take_last();
  command.add_flag("--allow-changes", options->run.allow_changes,
                   "Continue with a model, loss, data or batch that differ from those of the run");
  command.add_flag("--overwrite", options->run.overwrite,
                   "Discard an existing run in the run folder; with --resume PATH of that run, "
                   "only its later checkpoints");
  add_text(command, "--stop-at", options->run.stop_at,
           "Evaluate, save and stop (exit code 75) after this step, or share of all steps (25%); "
           "--resume auto continues");
  // A restarted rank may replace the summary of its own run.
  add_output(command, "--result", options->result,
             "Write the final summary to this file as one JSON object", /*of_run=*/true);
  command
      .add_option("--nproc-per-node,--nproc_per_node", options->ranks,
                  "Start this many ranks on this machine: a number, auto, gpu or cpu")
      ->take_last();
  command.add_flag("--dry-run", options->dry_run,
                   "Print the resolved configuration, the plan and where the run would start");
  command.add_flag("--print-config", options->print_config,
                   "Print the resolved configuration and stop");
  command.add_flag("-q,--quiet", options->run.quiet, "Only warnings and errors on the terminal");
  command.add_option("--log-level", options->run.log_level, "trace, debug, info, warning or error")
      ->take_last();
  return options;
}

// `dltrain train`, which starts the ranks itself with --nproc-per-node.
ExitCode run_train(TrainOptions& options) {
  const int ranks = parse_ranks(options.ranks);
  if (ranks == 1) return run_train(options, 1, {});
  refuse_ranks_of_ranks(ranks);
  return run_train(options, ranks,
                   [&](const LaunchedRun& run) { return launch_ranks(ranks, run); });
}

}  // namespace

CommandBody add_train(CLI::App& command) {
  const auto options = add_options(command);
  return [options] { return run_train(*options); };
}

ExitCode train_launched(const std::vector<std::string>& arguments, int ranks,
                        const StartRanks& start) {
  CLI::App command{"Arguments of each rank", "dltrain launch … -- train"};
  command.failure_message(usage_message);
  const auto options = add_options(command);
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    command.parse(reversed);  // CLI11 expects the reverse order
  } catch (const CLI::ParseError& error) {
    return command.exit(error) == 0 ? ExitCode::ok : ExitCode::usage;
  }
  if (options->ranks != "1") {
    fail(ExitCode::usage, "--nproc-per-node must precede the arguments of the ranks");
  }
  return run_train(*options, ranks, start);
}

}  // namespace dltrain
