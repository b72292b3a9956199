// Runs a program as the ranks of one run on this host, alone or together with the launchers of
// other hosts: starts, watches, ends and restarts them. docs/launch.md is the user's manual.
//
// * Environment: torchrun's variables (comm/environment.h). The ranks meet at a store that this
//   process serves, or the launcher at the endpoint where there are several; it is guarded by a
//   secret (random on one node, $DLTRAIN_STORE_SECRET on several).
// * CPUs (launch/cpus.h): what this process may use is shared among the ranks of this host: each is
//   bound to its share, and OMP_NUM_THREADS is set to it, unless the environment says otherwise
//   (OMP_NUM_THREADS; OMP_PLACES, OMP_PROC_BIND or GOMP_CPU_AFFINITY, which bind by themselves).
// * Output: rank 0's lines pass as they are, so that a pipe sees what one process would have
//   written; those of the others begin with "[rank N] ", here and nowhere else. Where stdout or
//   stderr is a terminal rank 0 keeps it (and its progress bar). Ranks read from /dev/null. Lines
//   may go to files as well (tee) or instead (redirects).
// * Signals: SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 go on to every rank. The third SIGINT or
//   SIGTERM kills the ranks. An interrupted launcher restarts nothing.
// * Failure: when a rank ends with a code other than 0 the others get SIGTERM, and SIGKILL after
//   `grace`. The first failing rank is named on stderr with its
//   code or signal, what the ranks have told of it in the store, and its last lines unless they
//   stand right above; on every node. The ranks that lose it say nothing themselves. A rank that
//   reports the loss of a peer (code 6), or stopped early (75), is blamed only when no rank fails
//   in its own way within a moment. A rank that the others report as stopped or hanging
//   (comm/watch.h) is killed and blamed. Ranks that were lost because this process stood still are
//   not blamed: it says that it did.
// * Restarts: all ranks of all nodes begin again, up to `max_restarts` times; not after a failure
//   that a restart cannot change (codes 2, 3, 4, 5, 9), nor after kFruitless restarts that brought
//   the run no further. Ranks are told through DLTRAIN_RESTARTED to go on from the newest
//   checkpoint of the run, once the run folder is theirs.
// * No rank outlives this call, nor this process however it ends (the kernel kills them); processes
//   that a rank has left behind in its group are killed with it.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/environment.h"
#include "launch/cpus.h"

namespace dltrain {

// Restarts in a row without a new greatest step or checkpoint, after which a run is given up.
inline constexpr int kFruitless = 3;

// Which streams of which local ranks; bit 0: stdout, bit 1: stderr.
struct StreamChoice {
  int all = 0;                  // of ranks that are not named
  std::map<int, int> of_local;  // by local rank
  int of(int local_rank) const {
    const auto found = of_local.find(local_rank);
    return found == of_local.end() ? all : found->second;
  }
  bool any() const;
};

struct LaunchOptions {
  int processes = 1;            // ranks on this node
  std::string executable = {};  // empty: this program
  CpuBinding binding = CpuBinding::exclusive;
  Environment variables = {};                   // set for all ranks, over the inherited ones
  std::chrono::milliseconds grace{15'000};      // for the others to end after a failure
  std::chrono::milliseconds blame_window{500};  // for the cause to appear after a code 6
  size_t remembered_lines = 10;                 // of a failing rank's stderr, repeated at the end

  int min_nodes = 1, max_nodes = 1;
  std::optional<int> node_rank = {};  // absent: nodes come in any order
  std::optional<bool> is_host = {};   // whether this one serves the store; absent: found out
  std::string address = {};           // where the nodes meet; empty: this host alone
  int port = 0;                       // of the store; 0: any free one
  std::string host_address = {};      // this host's, as the others reach it; empty: found out
  std::string run_id = "none";
  // Of the store. Empty: a random one where this host is alone, else anybody who reaches it is let
  // in.
  std::string secret = {};
  std::chrono::milliseconds join_timeout{600'000};  // for the nodes to come
  std::chrono::milliseconds last_call{30'000};      // for more nodes, once there are min_nodes
  // A store that does not answer for so long (a host that is gone sends no farewell) is lost.
  std::chrono::milliseconds read_timeout{60'000};
  // Between looks at the store; 200 ms where it is more, so that a finding is acted on in time.
  std::chrono::milliseconds monitor_interval{100};
  int max_restarts = 0;  // as min_nodes and max_nodes, the same for all launchers of a run
  // Of the files of tee and redirects: in a folder of this run in it, named by the run's id and
  // something random; empty: in one for temporary files. It is told.
  std::filesystem::path log_dir = {};
  StreamChoice redirects = {}, tee = {};
};

// Of 128 random bits, in hexadecimal.
std::string random_name();

// Blocks until all ranks have ended for good. Returns 0, or the first failing rank's own code, 6
// for one that was killed by a signal, 75 when the ranks stopped early or SIGINT, SIGTERM or SIGHUP
// ended the waiting for other nodes; the same on every node.
// Throws Error when a rank cannot be started (usage) or the nodes do not meet (rank).
//
// Call it from the main thread before others are started: signals are taken through a signalfd,
// which needs them to be blocked in every thread.
int launch(const LaunchOptions& options, const std::vector<std::string>& arguments);

}  // namespace dltrain
