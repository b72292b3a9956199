// Collectives between processes on CPUs, over TCP.
//
// Every rank of a group calls make_gloo with the same size and group name and its own rank; the
// call returns when all are connected. Gloo makes the ranks meet and carries single messages; the
// collectives go by connections of ours (links.h), which are several times as fast. Operations run
// in order on one communication thread of the group, or on that of who waits for them. A message
// holds up the operations after it, as the contract has it (device/collectives.h): what would wait
// for ever on GPUs ends at the timeout.
//
// Determinism: comm/exchange.h. Data types: all for moving; f32, f64, bf16, f16, i32, i64 for
// reductions. `after` and `before` are ignored: work on CPU streams is done when its call returns.
// Messages match by the operation's kind, count, type and place in the group's sequence: a rank
// that issues another operation is reported, at once where both are at collectives and otherwise
// at the timeout; it never goes on with the wrong bytes.
//
// Memory: Exchange::scratch_bytes(size) at set-up, one small channel object for each (peer,
// address, size) that is sent to or received from, when first seen. Our own code allocates nothing
// after that; Gloo itself allocates list nodes for each message.
//
// Ports: each rank listens on two free ones for each group that is made so, Gloo's and ours. Ours
// takes only those who show what the ranks have told each other over Gloo's connections; Gloo's
// takes anybody.
//
// Process-wide effect: SIGPIPE is ignored from the first group on, since Gloo writes to sockets
// that a dead peer has closed.
//
// End with barrier() before the group is destroyed: closing resets the connections. The destructor
// finishes the queued operations, except while an exception is being handled: then it breaks the
// connections at once, so that the peers do not wait for this rank.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/observer.h"
#include "comm/store.h"
#include "device/collectives.h"

namespace dltrain {

struct GlooOptions {
  int rank = 0;
  int size = 1;
  // Unique for each group of a run (and for each attempt after a failure): names its keys in the
  // store.
  std::string group = "world";
  // The longest wait for a peer within an operation, without any progress.
  std::chrono::milliseconds timeout{600'000};
  // The longest wait for all ranks to come.
  std::chrono::milliseconds connect_timeout{60'000};
  // This host's address, on which the peers reach it; empty: the one that leads to the store.
  std::string address = {};
  // Is told of every operation, and outlives the group; nullptr: nobody. It knows the group by this
  // number.
  CollectiveObserver* observer = nullptr;
  int group_number = 0;
};

// Throws Error(rank), naming the ranks that did not come.
std::unique_ptr<Collectives> make_gloo(StoreClient& store, const GlooOptions& options);

}  // namespace dltrain
