// Makes the connections between the ranks, each when its two ranks first exchange data: the higher
// rank connects to the lower one. Every rank listens on a port and publishes its address and a
// random token in the store. Connections that do not present the token are closed, so a process
// without access to the store cannot join.
//
// Errors: Error(rank) naming the ranks that do not come or cannot be reached; Error(stopped) when
// the store's client is interrupted.
//
// Threads: all methods by any thread.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "comm/store.h"

namespace dltrain {

class PeerConnections;
class RankWatch;

struct HostGroupOptions {
  int rank = 0;
  int size = 1;
  // Names the group's keys in the store. Unique for each group of a run, and for each attempt after
  // a failure.
  std::string group = "world";
  // The longest wait for a peer within an operation, without progress.
  std::chrono::milliseconds timeout{600'000};
  // The longest wait for all ranks to come.
  std::chrono::milliseconds connect_timeout{60'000};
  // This host's address, as the peers reach it. Empty: the address of the connection to the store.
  std::string address = {};
  // Observes all operations; outlives the group. May be nullptr.
  RankWatch* watch = nullptr;
  // Called by the thread that runs an operation, before its first byte is sent. Tests and
  // benchmarks use it to count or delay operations.
  std::function<void()> before_operation = {};
};

// Throws the error for a peer that makes no progress.
[[noreturn]] void fail_silent(int peer, std::chrono::milliseconds timeout);

class PeerConnector {
 public:
  // Publishes this rank's address and waits until all ranks have published theirs. `store` outlives
  // the connector.
  PeerConnector(StoreClient& store, const HostGroupOptions& options);
  PeerConnector(const PeerConnector&) = delete;
  PeerConnector& operator=(const PeerConnector&) = delete;

  const HostGroupOptions& options() const { return options_; }
  // Returns a number for another group. All ranks make the same groups in the same order.
  int new_group() { return groups_++; }

  // Connects to a peer, or waits until it connects, at most for options().timeout. Both ranks call
  // it for the same group, once.
  FileDescriptor connect(int peer, int group);
  // Ends the waits for peers and closes the connections of all groups. `reason`: the error that
  // this rank has had, for the errors of the other groups; may be empty.
  void close(const std::string& reason = "");
  // Throws the error for an operation of a rank that has closed its connections.
  [[noreturn]] void fail_closed();
  // Called by the connections of a group when they begin and end.
  void add(PeerConnections& connections);
  void remove(PeerConnections& connections);

 private:
  // The first bytes on a connection.
  struct Handshake {
    std::array<uint32_t, 4> token;
    uint32_t rank, group;
  };
  std::string key(const std::string& name) const { return "peers/" + options_.group + "/" + name; }
  void wait_for_all();
  void check_size(int rank, const std::string& size) const;
  // The address at which a peer listens, and its token.
  struct Endpoint {
    std::string host;
    int port = 0;
    std::array<uint32_t, 4> token{};
  };
  Endpoint endpoint_of(int peer);
  FileDescriptor connect_to_peer(int peer, int group);
  bool has_gone(int peer);
  int accept_one(Clock::time_point deadline);

  StoreClient& store_;
  HostGroupOptions options_;
  FileDescriptor listener_;
  std::array<uint32_t, 4> token_{};
  std::atomic<int> groups_ = 0;

  std::mutex mutex_;  // protects the members below
  std::condition_variable changed_;
  std::vector<PeerConnections*> connections_;
  bool closed_ = false;
  std::string reason_;
  bool accepting_ = false;  // a thread accepts connections, for all that wait
  // Accepted connections by group and rank: ranks may connect for a later group already.
  std::map<std::pair<uint32_t, uint32_t>, FileDescriptor> accepted_;
};

}  // namespace dltrain
