#include "dltrain/ranks.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>

#include <spdlog/spdlog.h>
#include <unistd.h>

#include "launch/launcher.h"
#include "train/stop.h"

namespace dltrain {
namespace {

// The arguments of this process without --nproc-per-node: what each rank runs.
std::vector<std::string> rank_arguments(const std::vector<std::string>& all) {
  std::vector<std::string> out;
  for (size_t i = 0; i < all.size(); ++i) {
    std::string name = all[i].substr(0, all[i].find('='));
    std::replace(name.begin(), name.end(), '_', '-');
    if (name != "--nproc-per-node") {
      out.push_back(all[i]);
    } else if (name.size() == all[i].size()) {
      ++i;  // the number
    }
  }
  return out;
}

// A rank that was told to stop before all have met ends: so do the others, whom it may have left.
World join(const RankEnvironment& environment, Device& device, const WorldOptions& options) {
  try {
    return join_world(environment, device, options);
  } catch (const Error& error) {
    if (error.code() != ExitCode::rank || stop_signal() == 0) throw;
    fail(ExitCode::stopped, "stopped by signal {} before all ranks had met", stop_signal());
  }
}

}  // namespace

ExitCode as_rank(const RankEnvironment& environment, const ParallelismConfig& parallelism,
                 const std::function<ExitCode(const World& world)>& body) {
  const auto milliseconds = [](double seconds) {
    return std::chrono::milliseconds(static_cast<int64_t>(1000 * seconds));
  };
  const auto host = engines().cpu->open(0);
  release_stop_signals();
  std::atomic<bool> met = false;  // also read on the watch's thread
  const World world =
      join(environment, *host,
           {.timeout = milliseconds(parallelism.timeout),
            .connect_timeout = milliseconds(parallelism.join_timeout),
            .straggler_factor = parallelism.straggler_factor,
            .interrupted = [] { return stop_signal() != 0; },
            .on_lost =
                [&met](const std::string& message) {
                  if (!met && stop_signal() != 0) _exit(static_cast<int>(ExitCode::stopped));
                  // The training thread is stuck somewhere: nothing of it can be ended in
                  // order.
                  fmt::print(stderr, "dltrain: error: {}\n", message);
                  std::fflush(nullptr);
                  _exit(static_cast<int>(ExitCode::rank));
                },
            .on_straggler = [](const std::string& message) { spdlog::warn("{}", message); }});
  met = true;
  // Peers that were told to stop too are lost on purpose before the first step.
  const auto stopped = [&](ExitCode code) {
    return code == ExitCode::rank && stop_signal() != 0 && world.watch->step() < 0;
  };
  try {
    const ExitCode code = body(world);
    if (stopped(code)) return ExitCode::stopped;
    world.watch->finish();
    if (code != ExitCode::rank) world.collectives->barrier();
    return code;
  } catch (const Error& error) {
    if (stopped(error.code())) {
      fail(ExitCode::stopped, "stopped by signal {} before the first step", stop_signal());
    }
    // A lost rank has been told of already.
    if (error.code() != ExitCode::rank) world.watch->report(error.what());
    throw;
  }
}

void refuse_ranks_of_ranks(int ranks) {
  const std::string launcher = rank_environment(process_environment()).launcher;
  if (launcher.empty()) return;
  fail(ExitCode::usage,
       "--nproc-per-node {}: this process is a rank already, started by {}; its ranks start none",
       ranks, launcher);
}

void refuse_pipes(const std::vector<std::string>& arguments) {
  namespace fs = std::filesystem;
  for (const std::string& argument : arguments) {
    std::error_code ignored;
    const fs::file_status status = fs::status(argument, ignored);
    if (!fs::exists(status) || fs::is_regular_file(status) || fs::is_directory(status)) continue;
    fail(ExitCode::usage,
         "{}: every rank reads the configuration, which must be a file and no pipe", argument);
  }
}

int launch_ranks(int ranks) {
  refuse_pipes(command_line());
  return launch({.processes = ranks}, rank_arguments(command_line()));
}

}  // namespace dltrain
