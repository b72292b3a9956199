#include "comm/world.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "comm/host_collectives.h"
#include "comm/single.h"

namespace dltrain {

void DelayedStoreShutdown::operator()(StoreServer* server) const {
  server->wait_for_disconnects(kShutdownTimeout);
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
  StoreOptions store{
      .address = environment.master_address,
      .port = environment.master_port,
      .secret = environment.secret,
      .prefix = environment.store_prefix(),
      .connect_timeout = options.connect_timeout,
      .answer_time = std::clamp<std::chrono::milliseconds>(
          options.timeout, std::chrono::milliseconds(200), std::chrono::minutes(10))};
  const auto connected = std::make_shared<std::atomic<bool>>(false);
  if (options.interrupted) {
    // Not the watch, which uses the store too.
    store.interrupted = [connected, interrupted = options.interrupted,
                         self = std::this_thread::get_id()] {
      return !*connected && std::this_thread::get_id() == self && interrupted();
    };
  }
  world.store = std::make_unique<StoreClient>(store);
  if (options.on_lost) {
    world.watch = std::make_unique<RankWatch>(
        *world.store,
        WatchOptions{.rank = environment.rank,
                     .size = environment.world_size,
                     .timeout = options.timeout,
                     .straggler_factor = options.straggler_factor,
                     .notice_time = world.server ? DelayedStoreShutdown::kShutdownTimeout
                                                 : WatchOptions::kNoticeTime,
                     .on_lost = options.on_lost,
                     .on_straggler = options.on_straggler,
                     .on_store_lost = options.on_store_lost});
    if (options.on_watched) options.on_watched();
  }
  const HostGroupOptions group{.rank = environment.rank,
                               .size = environment.world_size,
                               .timeout = options.timeout,
                               .connect_timeout = options.connect_timeout,
                               .address = environment.host_address,
                               .watch = world.watch.get()};
  HostCollectives* host = nullptr;
  try {
    auto made = make_host_group(*world.store, group);
    host = made.get();
    world.collectives = std::move(made);
  } catch (const Error& error) {
    // The other ranks learn which rank did not connect, instead of that this one was lost.
    if (world.watch && error.code() == ExitCode::rank) world.watch->report(error.what());
    throw;
  }
  world.make_group = [host] { return host->make_unobserved(); };
  *connected = true;
  return world;
}

}  // namespace dltrain
