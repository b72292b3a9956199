#include "cuda_runtime/rank_process.h"

#include <unistd.h>

#include "comm/world.h"
#include "cpu/engine.h"

namespace dltrain {

ExitCode as_watched_rank(const test::RankContext& context, std::chrono::milliseconds timeout,
                         const std::function<void(const std::string&)>& tell,
                         const std::function<ExitCode(const RunRanks&)>& body) {
  const auto cpu = cpu_engine().open(0);
  RankEnvironment environment;
  environment.rank = environment.local_rank = context.rank;
  environment.world_size = environment.local_world_size = context.size;
  environment.master_port = context.port;
  environment.store_served = true;
  environment.run_id = "run";
  const auto lost = [&](const std::string& message) {
    tell(message);
    _exit(static_cast<int>(ExitCode::rank));
  };
  const World world =
      join_world(environment, *cpu, {.timeout = timeout, .watch = {.on_lost = lost}});
  try {
    const ExitCode code = body(ranks_of(world));
    world.watch->finish();
    if (code != ExitCode::rank) world.collectives->barrier();
    tell("");
    return code;
  } catch (const Error& error) {
    tell(error.what());
    if (error.code() != ExitCode::rank) world.watch->report(error.what());
    throw;
  }
}

}  // namespace dltrain
