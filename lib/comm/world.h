// The group of all ranks of a run, ready to use: from the environment to collectives.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "comm/environment.h"
#include "comm/store.h"
#include "comm/watch.h"
#include "device/collectives.h"
#include "device/device.h"

namespace dltrain {

struct WorldOptions {
  std::chrono::milliseconds timeout{600'000};         // for a peer within an operation
  std::chrono::milliseconds connect_timeout{60'000};  // for all ranks to connect
  // Ends the wait for the other ranks with Error(stopped). Not called once all have connected.
  InterruptCheck interrupted = {};
  // See StoreServer; used if this rank serves the store.
  std::function<void(const std::string& address)> on_refused = {};
  // Called when the watch has started. The other ranks and the launcher learn of later failures.
  std::function<void()> on_watched = {};
  // Rank, size and timeout are set by join_world(). Without `on_lost` the ranks are not watched.
  WatchOptions watch = {};
};

// Returns the group of one rank: reductions leave the data unchanged, other operations copy it with
// device.copy() on the stream `after`, if input and output differ. `device` outlives the group.
std::unique_ptr<Collectives> make_single(Device& device);

// With one rank the group has one member, and there is a store only if the launcher serves one.
// Destroy it after everything that uses it.
struct World {
  RankEnvironment environment;
  // On rank 0, unless the launcher serves the store.
  std::unique_ptr<StoreServer> server;
  std::unique_ptr<StoreClient> store;  // nullptr: there is none
  std::unique_ptr<RankWatch> watch;    // nullptr without a store or without on_lost
  std::unique_ptr<Collectives> collectives;
};

// Connects to the other ranks. Throws Error(rank) naming the missing ranks, and Error(stopped) if
// interrupted. `device` outlives the result.
World join_world(const RankEnvironment& environment, Device& device,
                 const WorldOptions& options = {});

}  // namespace dltrain
