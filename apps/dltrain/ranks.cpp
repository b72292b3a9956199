#include "dltrain/ranks.h"

#include <chrono>
#include <cstdio>

#include <spdlog/spdlog.h>
#include <unistd.h>

#include "launch/launcher.h"

namespace dltrain {
namespace {

// The arguments of this process without --nproc-per-node: what each rank runs.
std::vector<std::string> rank_arguments(const std::vector<std::string>& all) {
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

}  // namespace

ExitCode as_rank(const RankEnvironment& environment, const ParallelismConfig& parallelism,
                 const std::function<ExitCode(const World& world)>& body) {
  const auto milliseconds = [](double seconds) {
    return std::chrono::milliseconds(static_cast<int64_t>(1000 * seconds));
  };
  const auto host = engines().cpu->open(0);
  const World world =
      join_world(environment, *host,
                 {.timeout = milliseconds(parallelism.timeout),
                  .connect_timeout = milliseconds(parallelism.join_timeout),
                  .straggler_factor = parallelism.straggler_factor,
                  .on_lost =
                      [](const std::string& message) {
                        // The training thread is stuck somewhere: nothing of it can be ended in
                        // order.
                        fmt::print(stderr, "dltrain: error: {}\n", message);
                        std::fflush(nullptr);
                        _exit(static_cast<int>(ExitCode::rank));
                      },
                  .on_straggler = [](const std::string& message) { spdlog::warn("{}", message); }});
  try {
    const ExitCode code = body(world);
    world.watch->finish();
    if (code != ExitCode::rank) world.collectives->barrier();
    return code;
  } catch (const Error& error) {
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

int launch_ranks(int ranks) {
  return launch({.processes = ranks}, rank_arguments(command_line()));
}

}  // namespace dltrain
