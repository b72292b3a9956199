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
  std::chrono::milliseconds timeout{600'000};         // of a peer within an operation
  std::chrono::milliseconds connect_timeout{60'000};  // until all ranks have come
  double straggler_factor = 2;                        // see comm/watch.h
  // Gives up waiting for the others, with Error(stopped); not looked at once all have met.
  Interrupted interrupted = {};
  // Rank 0, where it serves the store: see StoreServer.
  std::function<void(const std::string& address)> on_refused = {};
  // The watch has begun: of what fails from now on the other ranks learn, and a launcher of ours.
  std::function<void()> on_watched = {};
  // What to do with findings; without `on_lost` the ranks are not watched. Where this process
  // serves the store the others have had time to read the finding before.
  std::function<void(const std::string&)> on_lost = {}, on_straggler = {};
  std::function<void()> on_lost_touch = {};
};

// Ends a store that this process serves once the other ranks have left it, and after
// kFarewell at the latest: they read in it why this one ends.
struct StoreFarewell {
  // For a look at the verdict, which may come late, and for a busy rank to end.
  static constexpr std::chrono::milliseconds kFarewell =
      2 * RankWatch::kBeat + WatchOptions::kNoticeTime;
  void operator()(StoreServer* server) const;
};

// Alone (not distributed): no store, and the group of one. Destroy after everything that uses it.
struct World {
  RankEnvironment environment;
  // On rank 0, unless the launcher serves the store. The other ranks keep it up for a moment.
  std::unique_ptr<StoreServer, StoreFarewell> server;
  std::unique_ptr<StoreClient> store;  // nullptr when alone
  std::unique_ptr<RankWatch> watch;    // nullptr when alone, or not wanted
  std::unique_ptr<Collectives> collectives;
  // Makes another group of the same ranks over host memory, which the watch is not told of; all
  // ranks must call it. Empty when alone.
  std::function<std::unique_ptr<Collectives>()> make_group;
};

// Meets the other ranks over Gloo. Throws Error(rank) naming what is missing, and
// Error(stopped) when interrupted. `device` outlives it.
World join_world(const RankEnvironment& environment, Device& device,
                 const WorldOptions& options = {});

}  // namespace dltrain
