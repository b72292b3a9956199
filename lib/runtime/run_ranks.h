// The ranks of a run, as seen by this process.
#pragma once

#include "device/collectives.h"

namespace dltrain {

class RankWatch;    // comm/watch.h
class StoreClient;  // comm/store.h
struct World;       // comm/world.h

// By default there is one rank. Referenced objects outlive the run.
struct RunRanks {
  Collectives* collectives = nullptr;  // over host memory; nullptr with one rank
  StoreClient* store = nullptr;        // nullptr with one rank
  RankWatch* watch = nullptr;          // nullptr: none
  int rank = 0, world = 1, local_rank = 0;
  bool marked = false;     // its launcher puts "[rank N] " before its lines
  int ranks_per_node = 0;  // of this rank's node; 0: all are on one, as far as is known

  bool is_leader() const { return rank == 0; }
  int on_this_node() const { return ranks_per_node > 0 ? ranks_per_node : world; }
};

// The ranks of a world that has been joined.
RunRanks ranks_of(const World& world);

}  // namespace dltrain
