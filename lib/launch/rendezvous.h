// How the launchers of several nodes meet, watch each other and agree, through one store.
//
// The launcher that can listen at the endpoint serves the store and leads: it decides who takes
// part in an attempt, in which order, and whether there is another attempt. Keys, under the run's
// id (k: number of the attempt, i: place in the order of coming):
//
//   attempt          the current attempt, by the leader
//   k/count          how many launchers have come
//   k/join/i         who: host, address, ranks, wanted node rank
//   k/refused/i      why the leader refuses one that has come (between attempts: at first all end)
//   k/plan           the leader's decision: the nodes in order, or why there are none
//   k/end            the first failure of the attempt (put_new; a launcher's last will, too)
//   k/done           how many nodes have ended well
//   k/next           the leader's decision after a failure: another attempt, or the last word
//   k/bye            how many launchers have read the last word
//
// Alone (one node, no endpoint) the same is done with a store on 127.0.0.1, where nobody else
// comes.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "comm/store.h"
#include "launch/worker_group.h"

namespace dltrain {

// One launcher and its host. (A `Node` is an operation of a graph.)
struct LaunchNode {
  std::string host = {};     // its name
  std::string address = {};  // as the other nodes see it
  int processes = 0;
  int wanted_rank = -1;  // −1: any
};

// Who takes part in an attempt.
struct Round {
  std::vector<LaunchNode> nodes;
  int own = 0;  // this node
  int max_restarts = 0;
  bool run_has_begun = false;  // in an earlier attempt
  int first_rank() const;
  int world_size() const;
};

class Rendezvous {
 public:
  // Listens or connects at the endpoint. Throws Error(rank) or Error(usage) with one sentence.
  // `secret`: of the store. `interrupted`: looked at while waiting; once it is true the constructor
  // and meet() end with Error(stopped), or without a Round.
  Rendezvous(const LaunchOptions& options, const std::string& secret,
             std::function<bool()> interrupted);

  bool leads() const { return server_ != nullptr; }
  int attempt() const { return attempt_; }
  const std::string& address() const { return address_; }
  int port() const { return port_; }

  // Meets the other nodes for this attempt. Nothing when interrupted. Throws Error(rank) naming who
  // is missing after the timeout, Error(usage) for contradictory node ranks: the same on all nodes.
  // A leader tells all whether the run has begun in an earlier attempt.
  std::optional<Round> meet(bool run_has_begun);
  // Tells the others why the attempt has failed. Where another node told of a failure before, that
  // one counts, and is returned.
  std::optional<Failure> report(const Failure& failure);
  // A failure that another node has reported.
  std::optional<Failure> failure_elsewhere();
  // This node's ranks have ended well; whether those of all nodes have. Call until it is true or a
  // failure comes from elsewhere.
  bool all_done(const Round& round);
  // After a failure, on every node: the leader says whether there is another attempt. Empty: there
  // is, and attempt() is the next one. Otherwise the reason why not.
  std::string decide(const std::string& leaders_reason_to_end);
  // The end, good or bad: a leader stays a moment until the others have learnt of it. For these a
  // leader that has gone already is no error.
  void leave(const Round& round);

  // Says what the store's thread has noticed, which must not wait for a full terminal. Call it now
  // and then; where nodes are waited for that is done here.
  void tell_news();

  // A client of the ranks' own part of the store in this attempt.
  StoreClient& ranks_store();
  std::string run_id() const { return options_.run_id; }

 private:
  std::string key(const char* name) const { return fmt::format("{}/{}", attempt_, name); }
  void open(const std::string& secret);
  void wait_for_name();
  StoreOptions store_options(const std::string& prefix) const;
  void join();
  void lead(bool run_has_begun);
  void part();
  void wait_for_farewells(int64_t others);
  template <typename Condition>
  bool wait_for(std::chrono::milliseconds timeout, const Condition& condition);

  const LaunchOptions& options_;
  std::string secret_;
  std::function<bool()> interrupted_;
  std::string address_;
  int port_ = 0;
  std::mutex news_mutex_;
  std::vector<std::string> news_;
  std::unique_ptr<StoreServer> server_;  // after what its thread writes
  std::unique_ptr<StoreClient> client_, ranks_;
  int attempt_ = 0;
  int place_ = 0;  // in the order of coming to this attempt
  bool done_ = false;
};

}  // namespace dltrain
