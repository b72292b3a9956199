#include "comm/world.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "comm/host_collectives.h"

namespace dltrain {
namespace {

// The time that a server stays for the other ranks, which read there why this rank ends: long
// enough for two heartbeats of the watch, and for a busy rank to end.
constexpr std::chrono::milliseconds kShutdownTimeout =
    2 * RankWatch::kHeartbeatInterval + WatchOptions::kNoticeTime;

class SingleCollectives : public Collectives {
 public:
  explicit SingleCollectives(Device& device) : device_(device) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }

  // The copies are in stream order.
  void wait(Ticket, Stream&) override {}
  void barrier() override {}

 private:
  Ticket queue(const CollectiveCall& call, Stream& after) override {
    const CollectiveExtent extent = extent_of(call, 0, 1);
    if (!extent.in_place && call.input != call.output && call.count > 0) {
      device_.copy(call.output, call.input, call.bytes(), after);
    }
    return ++tickets_;
  }

  Device& device_;
  Ticket tickets_ = 0;
};

}  // namespace

std::unique_ptr<Collectives> make_single(Device& device) {
  return std::make_unique<SingleCollectives>(device);
}

World join_world(const RankEnvironment& environment, Device& device, const WorldOptions& options) {
  World world;
  world.environment = environment;
  if (!environment.distributed()) world.collectives = make_single(device);
  if (!environment.has_store()) return world;
  if (environment.rank == 0 && !environment.store_served) {
    world.server = std::make_unique<StoreServer>(
        listening_address(environment.master_address), environment.master_port, environment.secret,
        options.on_refused, kShutdownTimeout, "MASTER_PORT");
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
  if (options.watch.on_lost) {
    WatchOptions watch = options.watch;
    watch.rank = environment.rank;
    watch.size = environment.world_size;
    watch.timeout = options.timeout;
    if (world.server) watch.notice_time = kShutdownTimeout;
    world.watch = std::make_unique<RankWatch>(*world.store, std::move(watch));
    if (options.on_watched) options.on_watched();
  }
  if (!environment.distributed()) {
    *connected = true;
    return world;
  }
  const HostGroupOptions group{.rank = environment.rank,
                               .size = environment.world_size,
                               .timeout = options.timeout,
                               .connect_timeout = options.connect_timeout,
                               .address = environment.host_address,
                               .watch = world.watch.get()};
  try {
    world.collectives = std::make_unique<HostCollectives>(*world.store, group);
  } catch (const Error& error) {
    // The other ranks learn the reason, instead of that this one was lost.
    if (world.watch && error.code() != ExitCode::stopped) {
      world.watch->report(error.what(), error.code());
    }
    throw;
  }
  *connected = true;
  return world;
}

}  // namespace dltrain
