// Runs a program as the ranks of one run on this host, alone or together with the launchers of
// other hosts: starts, watches, ends and restarts them. docs/launch.md is the user's manual.
//
// * Environment: torchrun's variables (comm/environment.h). The ranks connect to a store that this
//   process serves, or with several nodes the launcher at the endpoint. It is protected by a secret
//   (random on one node, $DLTRAIN_STORE_SECRET on several).
// * CPUs (launch/cpus.h): the CPUs of this process are divided among the ranks of this host. Each
//   is bound to its share, and OMP_NUM_THREADS is set to it, unless the environment says otherwise
//   (OMP_NUM_THREADS; OMP_PLACES, OMP_PROC_BIND or GOMP_CPU_AFFINITY, which bind threads).
// * Output: the lines of rank 0 are passed on unchanged; those of the others are prefixed with
//   "[rank N] ". If stdout or stderr is a terminal, rank 0 writes to it directly (progress bar).
//   Ranks read from /dev/null. Lines can also go to files (tee), or only to files (redirects).
// * Signals: SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are passed on to every rank. The third
//   SIGINT, SIGTERM or SIGHUP kills the ranks. An interrupted launcher does not restart.
// * Failure: when a rank ends with a code other than 0, the others get SIGTERM, and SIGKILL after
//   `grace`. On every node stderr names the first failing rank, with its code or signal, what the
//   ranks have written to the store about it, and its last lines unless they were printed just
//   before. Ranks that only lost it print nothing themselves. A rank that reports the loss of a
//   peer (code 6) or stopped early (75) counts as the cause only if no rank fails itself within a
//   moment. A rank that the others report as stopped or hanging (comm/watch.h) is killed and is the
//   cause.
// * Restarts: all ranks of all nodes start again, up to `max_restarts` times; not after a failure
//   that a restart cannot fix (codes 2, 3, 4, 5, 9), nor after kMaxFruitlessRestarts restarts
//   without progress. DLTRAIN_RESTARTED tells the ranks to resume from the newest checkpoint, once
//   the run has created its run folder.
// * No rank outlives this call, nor this process (the kernel kills them). Processes that a rank has
//   left in its process group are killed with it.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/environment.h"

namespace dltrain {

// The number of consecutive restarts without a new greatest step or checkpoint that ends a run.
inline constexpr int kMaxFruitlessRestarts = 3;

// Properties of the run by which the launcher finds hangs and names the step of a restart.
struct LaunchedRun {
  // A rank 0 without a heartbeat for this time hangs. The ranks watch each other in the same way,
  // but nobody else watches a rank that is alone, or all if all are stopped.
  std::chrono::duration<double> timeout{600};
  // Returns the step of the checkpoint from which a restart continues; 0: none. Called between two
  // attempts, once the run has its run folder. Empty: not known.
  std::function<int64_t()> saved_step = {};
};

struct LaunchOptions {
  int processes = 1;                            // ranks on this node
  std::string executable = {};                  // empty: this program
  bool bind_cpus = true;                        // each rank to its own CPUs
  Environment variables = {};                   // set for all ranks, over the inherited ones
  std::chrono::milliseconds grace{15'000};      // for the others to end after a failure
  std::chrono::milliseconds cause_window{500};  // for the cause to appear after a code 6

  int min_nodes = 1, max_nodes = 1;
  std::optional<int> node_rank = {};           // absent: nodes come in any order
  std::string address = {};                    // where the nodes meet; empty: this host alone
  int port = 0;                                // of the store; 0: any free one
  std::string port_setting = "--master-port";  // chooses it, for messages
  std::string host_address = {};  // this host's, as the others reach it; empty: found out
  std::string run_id = "none";
  // The secret of the store. Empty: a random one if this host is alone, otherwise anybody who
  // reaches the store may join.
  std::string secret = {};
  std::chrono::milliseconds join_timeout{600'000};  // for the nodes to come
  std::chrono::milliseconds last_call{30'000};      // for more nodes, once there are min_nodes
  // A store that does not answer for this time is lost.
  std::chrono::milliseconds read_timeout{60'000};
  // Interval of reading the store; at most 200 ms, so that failures are handled in time.
  std::chrono::milliseconds monitor_interval{100};
  LaunchedRun run = {};
  int max_restarts = 0;  // as min_nodes and max_nodes, the same for all launchers of a run
  // The place of the log files of tee and redirects: a new folder in it, named after the run's id
  // and a random number. Empty: the folder for temporary files. The folder is printed.
  std::filesystem::path log_dir = {};
  // Streams that are written to files only, or also: bit 0 is stdout, bit 1 stderr.
  int redirects = 0, tee = 0;
};

// Returns 128 random bits in hexadecimal.
std::string random_name();

// Blocks until all ranks have ended and there is no restart. Returns 0, or the code of the first
// failing rank, 6 if it was killed by a signal, 75 if the ranks stopped early or SIGINT, SIGTERM or
// SIGHUP ended the wait for other nodes; the same on every node. Throws Error if a rank cannot be
// started (usage, memory) or the nodes do not connect (rank).
//
// Call it from the main thread before others are started: signals are received through a signalfd,
// which requires that they are blocked in every thread.
int launch(const LaunchOptions& options, const std::vector<std::string>& arguments);

}  // namespace dltrain
