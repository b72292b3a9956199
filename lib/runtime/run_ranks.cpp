#include "runtime/run_ranks.h"

#include "comm/world.h"

namespace dltrain {

RunRanks ranks_of(const World& world) {
  const RankEnvironment& environment = world.environment;
  return {.collectives = environment.distributed() ? world.collectives.get() : nullptr,
          .store = environment.distributed() ? world.store.get() : nullptr,
          .watch = world.watch.get(),
          .rank = environment.rank,
          .world = environment.world_size,
          .local_rank = environment.local_rank,
          .marked = environment.store_served,
          .ranks_per_node = environment.local_world_size};
}

}  // namespace dltrain
