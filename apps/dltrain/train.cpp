// dltrain train: one run, or the start of several ranks of it.
#include <filesystem>

#include <unistd.h>

#include "comm/world.h"
#include "config/dump.h"
#include "dltrain/commands.h"
#include "launch/launcher.h"
#include "telemetry/log.h"
#include "train/run.h"

namespace dltrain {
namespace {

struct Options {
  ConfigOptions config;
  RunOptions run;
  std::string folder, result;
  int ranks = 1;
  bool dry_run = false, print_config = false;
};

// The arguments of this process without --nproc-per-node: what each rank runs.
std::vector<std::string> rank_arguments() {
  const std::vector<std::string>& all = command_line();
  std::vector<std::string> out;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] == "--nproc-per-node") {
      ++i;
    } else if (!all[i].starts_with("--nproc-per-node=")) {
      out.push_back(all[i]);
    }
  }
  return out;
}

// What is wrong with the options whatever the configuration says.
void check_options(const Options& options) {
  log_level_from_name(options.run.log_level);
  if (options.run.overwrite && options.run.resume != "never") {
    fail(ExitCode::usage, "--overwrite discards the run that --resume would go on with; give one");
  }
  if (!options.result.empty()) {
    const auto parent = std::filesystem::absolute(options.result).parent_path();
    if (access(parent.c_str(), W_OK) != 0) {
      fail(ExitCode::storage, "--result {}: {} cannot be written to", options.result,
           parent.string());
    }
  }
}

ExitCode run(Options& options) {
  const RankEnvironment environment = rank_environment(process_environment());
  check_options(options);
  Experiment experiment = options.config.load();
  if (options.print_config) {
    fmt::print("{}", dump_config(experiment));
    return ExitCode::ok;
  }
  RunOptions run = options.run;
  run.engines = engines();
  run.folder = options.folder;
  run.result = options.result;
  if (options.dry_run) {
    fmt::print("{}\n", dump_config(experiment));
    print_plan(experiment, std::max(options.ranks, environment.world_size), false,
               [&](const Session& session) { fmt::print("{}\n", check_run(session, run)); });
    return ExitCode::ok;
  }
  if (options.ranks > 1 && environment.launcher.empty()) {
    // Mistakes in the file are reported once, here, and not by every rank.
    check_ranks(experiment, options.ranks);
    return static_cast<ExitCode>(launch_local({.processes = options.ranks}, rank_arguments()));
  }
  if (!environment.distributed()) return run_training(experiment, run);
  const auto host = run.engines.cpu->open(0);
  const World world = join_world(environment, *host);
  run.collectives = world.collectives.get();
  run.rank = environment.rank;
  run.world = environment.world_size;
  run.local_rank = environment.local_rank;
  const ExitCode code = run_training(experiment, run);
  if (code != ExitCode::rank) world.collectives->barrier();
  return code;
}

}  // namespace

CommandBody add_train(CLI::App& command) {
  auto options = std::make_shared<Options>();
  options->config.add_to(command);
  command.add_option("--output-dir", options->folder, "The run folder (default: runs/<name>)")
      ->take_last();
  command
      .add_option("--resume", options->run.resume,
                  "auto: go on from the newest checkpoint of the run folder, or begin; never; or "
                  "a checkpoint or run folder")
      ->take_last();
  command.add_flag("--overwrite", options->run.overwrite,
                   "Discard a run that is in the run folder");
  command
      .add_option("--result", options->result,
                  "Write the final summary to this file as one JSON object")
      ->take_last();
  command.add_option("--nproc-per-node", options->ranks, "Start this many ranks on this machine")
      ->take_last()
      ->check(CLI::Range(1, 1024));
  command.add_flag("--dry-run", options->dry_run,
                   "Print the resolved configuration, the plan and where the run would begin");
  command.add_flag("--print-config", options->print_config,
                   "Print the resolved configuration and stop");
  command.add_flag("-q,--quiet", options->run.quiet, "Only warnings and errors on the terminal");
  command.add_option("--log-level", options->run.log_level, "trace, debug, info, warning or error")
      ->take_last();
  return [options] { return run(*options); };
}

}  // namespace dltrain
