// dltrain profile CONFIG: where the time of a training step goes, as a table and as a Chrome trace.
#include "profile/profile.h"

#include <cstdio>

#include <unistd.h>

#include "base/file.h"
#include "base/stop.h"
#include "dltrain/commands.h"
#include "dltrain/ranks.h"
#include "launch/signal_source.h"
#include "telemetry/console.h"

namespace dltrain {
namespace {

struct ProfileFlags {
  ConfigOptions config;
  ProfileOptions profile;
  std::string folder, result, ranks = "1";
  int64_t rows = 12;
  bool quiet = false;
};

void print_profile(const ProfileReport& report, const ProfileFlags& options) {
  if (!options.result.empty()) write_file_atomically(options.result, profile_json(report));
  if (!options.quiet) {
    const bool bold = isatty(STDOUT_FILENO) != 0 && console().color();
    fmt::print("{}", profile_table(report, {static_cast<size_t>(options.rows), bold}));
  }
  fmt::print("trace: {} (open it in ui.perfetto.dev or chrome://tracing); roofline.svg beside it\n",
             report.trace.string());
}

ExitCode run_profile(const ProfileFlags& options, const RankEnvironment& environment) {
  Experiment experiment = options.config.load();
  ProfileOptions profile = options.profile;
  profile.engines = engines();
  profile.folder = options.folder;
  if (!environment.distributed()) {
    print_profile(*profile_training(experiment, profile), options);
    return ExitCode::ok;
  }
  release_stop_signals();
  return run_as_rank(environment, experiment.parallelism, [&](const World& world) {
    profile.ranks = ranks_of(world);
    const std::string layout = choose_layout(
        experiment,
        [&](const std::vector<std::string>& extra) { return options.config.load(extra); },
        profile.ranks);
    if (!layout.empty()) fmt::print("{}\n", layout);
    const auto report = profile_training(experiment, profile);
    if (report) print_profile(*report, options);
    return ExitCode::ok;
  });
}

ExitCode start(const ProfileFlags& options) {
  const int ranks = parse_ranks(options.ranks);
  if (ranks == 1) return run_profile(options, rank_environment(process_environment()));
  refuse_ranks_of_ranks(ranks);
  end_on_interruption();
  // Errors in the file are reported once here instead of by every rank.
  const Experiment experiment = options.config.load();
  if (experiment.parallelism.layout == LayoutChoice::given) check_ranks(experiment, ranks);
  return static_cast<ExitCode>(launch_ranks(
      ranks, {.timeout = std::chrono::duration<double>(experiment.parallelism.timeout)}));
}

}  // namespace

CommandBody add_profile(CLI::App& command) {
  auto options = std::make_shared<ProfileFlags>();
  options->config.add_to(command, ConfigOptions::Use::model);
  add_number(command, "--warmup", options->profile.warmup, 1, 1'000'000,
             "Steps before anything is timed (default 3)");
  add_number(command, "--steps", options->profile.steps, 1, 10'000,
             "Number of steps that are timed as a whole, and of steps that are timed call by call "
             "(default 10)");
  add_number(command, "--rows", options->rows, 1, 1'000'000, "Rows of each table (default 12)");
  add_text(command, "--output-dir", options->folder,
           "Where trace.json is written (default: runs/<name>)");
  add_output(command, "--result", options->result,
             "Write all figures to this file as one JSON object");
  command
      .add_option("--nproc-per-node,--nproc_per_node", options->ranks,
                  "Start this many ranks on this machine: a number, auto, gpu or cpu")
      ->take_last();
  command.add_flag("-q,--quiet", options->quiet, "Print only the path of the trace, no tables");
  return [options] { return start(*options); };
}

}  // namespace dltrain
