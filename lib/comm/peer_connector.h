// Makes the connections between the ranks. Every rank listens on a port and publishes its address
// and a random token in the store; the higher ranks of each group connect to the lower ones.
// Connections that do not present the token are closed, so a process without access to the store
// cannot join.
//
// Errors: Error(rank) naming the ranks that do not come or cannot be reached; Error(stopped) when
// the store's client is interrupted.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/peer_connections.h"
#include "comm/store.h"

namespace dltrain {

class RankWatch;

struct HostGroupOptions {
  int rank = 0;
  int size = 1;
  // Names the group's keys in the store. Unique for each group of a run, and for each attempt after
  // a failure.
  std::string group = "world";
  // The longest wait for a peer within an operation, without progress.
  std::chrono::milliseconds timeout{600'000};
  // The longest wait for all ranks to connect.
  std::chrono::milliseconds connect_timeout{60'000};
  // This host's address, as the peers reach it. Empty: the address of the connection to the store.
  std::string address = {};
  // Observes all operations; outlives the group. May be nullptr.
  RankWatch* watch = nullptr;
  // Called by the thread that runs an operation, before its first byte is sent. Tests and
  // benchmarks use it to count or delay operations.
  std::function<void()> before_operation = {};
};

// The address of a rank and the token that it expects; stored in the store as plain bytes.
struct PeerEndpoint {
  std::array<char, 256> host{};  // ends with a zero
  uint32_t port = 0;
  std::array<uint32_t, 4> token{};
};

class PeerConnector {
 public:
  // Publishes this rank's address and waits for those of all ranks.
  PeerConnector(StoreClient& store, const HostGroupOptions& options);
  ~PeerConnector() { close(); }
  PeerConnector(const PeerConnector&) = delete;
  PeerConnector& operator=(const PeerConnector&) = delete;

  const HostGroupOptions& options() const { return options_; }

  // Connects the members of a group with each other; all of them call it. `ranks` is ascending and
  // contains this rank; `group` is a number that only this group has. Called by one thread at a
  // time.
  std::shared_ptr<PeerConnections> connect(std::span<const int> ranks, int group);
  // Closes the connections of all groups. Can be called from any thread.
  void close();

 private:
  // The first bytes on a connection.
  struct Handshake {
    std::array<uint32_t, 4> token;
    uint32_t rank, group;
  };
  // An accepted connection whose handshake is incomplete.
  struct PendingConnection {
    FileDescriptor socket;
    Handshake handshake;
    size_t received = 0;
  };
  void gather_addresses(StoreClient& store);
  FileDescriptor connect_peer(int peer, int group, Clock::time_point deadline) const;
  FileDescriptor accept_from(int peer, int group, Clock::time_point deadline);
  void receive_handshakes(int timeout_ms);
  bool read_handshake(PendingConnection& pending);

  HostGroupOptions options_;
  FileDescriptor listener_;
  std::vector<PeerEndpoint> addresses_;  // [rank]
  std::vector<PendingConnection> pending_;
  // Accepted connections by group and rank: ranks may connect for a later group already.
  std::map<std::pair<uint32_t, uint32_t>, FileDescriptor> waiting_;

  std::mutex mutex_;  // protects the members below
  bool closed_ = false;
  std::vector<std::weak_ptr<PeerConnections>> connections_;
};

}  // namespace dltrain
