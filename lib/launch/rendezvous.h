// Connects the launchers of several nodes through one store: they agree on the nodes of an attempt,
// report failures to each other, and decide on restarts.
//
// The launcher that can listen on the endpoint serves the store and is the leader: it decides which
// nodes take part in an attempt, their order, and whether there is another attempt. Keys, after the
// run's id (k: number of the attempt, i: a random name of each launcher):
//
//   attempt          the current attempt; written by the leader
//   k/join/i         a LaunchNode
//   k/plan           the leader's decision: the nodes in order, or why the attempt cannot start
//   k/end            the first failure of the attempt (put_new; also a launcher's last will)
//   k/done/i         the node has ended successfully
//   k/next           the leader's decision after a failure: why the run ends; empty: a restart
//
// A launcher of one node does the same with a store on 127.0.0.1.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "comm/store.h"
#include "comm/watch_records.h"
#include "launch/worker_group.h"

namespace dltrain {

// A launcher and its host, as it announces itself.
struct LaunchNode {
  std::string host = {};     // name of the host
  std::string address = {};  // as the other nodes reach it
  int processes = 0;         // ranks on this node
  int wanted_rank = -1;      // --node-rank; −1: any
  bool is_leader = false;
  int process = 0;          // process id of the launcher
  std::string nnodes = {};  // --nnodes
  int max_restarts = 0;     // --max-restarts
  std::string leader = {};  // the leader's address, as this node reaches it
  std::string id = {};      // of the launcher
};

// The nodes of an attempt, or why it cannot start.
struct Round {
  std::vector<LaunchNode> nodes = {};
  std::string problem = {};
  int code = 0;  // exit code for the problem
  int own = 0;   // index of this node
  int max_restarts = 0;
  bool run_has_begun = false;  // in an earlier attempt
  int first_rank() const;
  int world_size() const;
};

class Rendezvous {
 public:
  // Listens on the endpoint or connects to it. Throws Error(rank) or Error(usage). `secret`: of the
  // store. `interrupted` is called while waiting; when it returns true, the constructor throws
  // Error(stopped) and join_round() returns nothing.
  Rendezvous(const LaunchOptions& options, const std::string& secret,
             std::function<bool()> interrupted);

  bool is_leader() const { return server_ != nullptr; }
  int attempt() const { return attempt_; }
  const std::string& address() const { return address_; }
  int port() const { return port_; }

  // Waits for the other nodes of this attempt. Returns nothing when interrupted. Throws Error(rank)
  // naming what is missing after the timeout, or Error(usage) for contradictory node ranks, on all
  // nodes alike. The leader tells all nodes whether the run has begun in an earlier attempt.
  std::optional<Round> join_round(bool run_has_begun);
  // Reports the failure of this attempt to the other nodes. If another node has reported one
  // before, returns that.
  std::optional<Failure> report(const Failure& failure);
  // Returns the failure that a node has reported.
  std::optional<Failure> remote_failure();
  // Call it when this node's ranks have ended successfully, until it returns true (all nodes have)
  // or a failure is reported elsewhere.
  bool all_done(const Round& round);
  // After a failure, on every node: returns an empty string if there is another attempt, which
  // attempt() then counts, otherwise the leader's reason to end the run.
  std::string decide_restart(const std::string& leaders_reason_to_end);
  // Ends the rendezvous. A leader waits a moment until the other nodes have disconnected, because
  // they read its decisions from its store.
  void leave();

  // Reads a key that the ranks of this attempt have written.
  std::optional<std::string> read_of_ranks(const std::string& name);
  // Reports a failure to the ranks of this attempt, unless one was reported before.
  void tell_ranks(const RankFailure& failure);

 private:
  std::string key(const char* name) const {
    return fmt::format("{}.launch/{}/{}", options_.run_id, attempt_, name);
  }
  std::string key_of_ranks(const std::string& name) const;
  std::string attempt_key() const { return options_.run_id + ".launch/attempt"; }
  void open();
  void wait_for_name();
  void join();
  void lead(bool run_has_begun);
  template <typename Condition>
  bool wait_for(std::chrono::milliseconds timeout, const Condition& condition,
                std::chrono::milliseconds pause = std::chrono::milliseconds(10));

  const LaunchOptions& options_;
  std::string secret_;
  std::function<bool()> interrupted_;
  std::string address_;
  int port_ = 0;
  std::unique_ptr<StoreServer> server_;  // of the leader
  std::unique_ptr<StoreClient> client_;
  int attempt_ = 0;
  std::string id_ = random_name();
};

}  // namespace dltrain
