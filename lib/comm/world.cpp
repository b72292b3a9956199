#include "comm/world.h"

#include <atomic>

#include "comm/endpoint.h"
#include "comm/gloo.h"
#include "comm/single.h"

namespace dltrain {

void StoreFarewell::operator()(StoreServer* server) const {
  server->wait_for_departures(kFarewell);
  delete server;
}

World join_world(const RankEnvironment& environment, Device& device, const WorldOptions& options) {
  World world;
  world.environment = environment;
  if (!environment.distributed()) {
    world.collectives = make_single(device);
    return world;
  }
  if (environment.rank == 0 && !environment.store_served) {
    world.server.reset(new StoreServer(listening_address(environment.master_address),
                                       environment.master_port, environment.secret,
                                       options.on_refused));
  }
  StoreOptions store{.address = environment.master_address,
                     .port = environment.master_port,
                     .secret = environment.secret,
                     .prefix = environment.store_prefix(),
                     .connect_timeout = options.connect_timeout};
  const StoreOptions for_watch = store;
  const auto met = std::make_shared<std::atomic<bool>>(false);
  if (options.interrupted) {
    store.interrupted = [met, asked = options.interrupted] { return !*met && asked(); };
  }
  world.store = std::make_unique<StoreClient>(store);
  if (options.on_lost) {
    world.watch = std::make_unique<RankWatch>(
        for_watch, WatchOptions{.rank = environment.rank,
                                .size = environment.world_size,
                                .timeout = options.timeout,
                                .straggler_factor = options.straggler_factor,
                                .notice_time = world.server ? StoreFarewell::kFarewell
                                                            : WatchOptions::kNoticeTime,
                                .on_lost = options.on_lost,
                                .on_straggler = options.on_straggler,
                                .on_lost_touch = options.on_lost_touch});
    if (options.on_watched) options.on_watched();
  }
  GlooOptions gloo{.rank = environment.rank,
                   .size = environment.world_size,
                   .timeout = options.timeout,
                   .connect_timeout = options.connect_timeout,
                   .address = environment.host_address,
                   .observer = world.watch.get()};
  try {
    world.collectives = make_gloo(*world.store, gloo);
  } catch (const Error& error) {
    // Or it would be missed, and the one that it has waited for in vain would not be named.
    if (world.watch && error.code() == ExitCode::rank) world.watch->report(error.what());
    throw;
  }
  gloo.observer = nullptr;
  world.make_group = [store = world.store.get(), gloo, made = 0]() mutable {
    gloo.group = "group " + std::to_string(++made);
    return make_gloo(*store, gloo);
  };
  *met = true;
  return world;
}

}  // namespace dltrain
