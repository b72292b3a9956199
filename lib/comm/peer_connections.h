// Data exchange between the ranks of a group. Each pair of ranks that exchanges data has its own
// TCP connection, made at the first time. The calling thread writes and reads it itself: there is
// no change of threads, and the received data is still in the cache of the core that reads it
// (docs/performance.md).
//
// Wire format: slot and length as two 64-bit numbers in the machine's byte order, then the data.
// The data of a pair arrives in order, so an unexpected slot means that the two ranks issue
// different operations; this is detected at once.
//
// Memory: nothing is allocated once a pair is connected. Errors: Error(rank) naming the peer that
// is lost, does not answer within the timeout, or is at a different operation. After an error the
// object can no longer be used.
//
// Threads: exchange() by one thread at a time, close() by any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include <poll.h>

#include "comm/peer_connector.h"

namespace dltrain {

// The data that one exchange sends to a peer and receives from it.
struct PeerExchange {
  int peer;
  const void* out;
  size_t out_bytes;
  void* in;
  size_t in_bytes;
};

class PeerConnections {
 public:
  // `ranks[p]` is the rank of peer p among all ranks; ascending and with this rank. `group`: a
  // number that only this group has. The connector outlives the connections.
  PeerConnections(PeerConnector& connector, std::span<const int> ranks, int group);

  // The place of this rank in the group, and the size of the group.
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  // The members of the group, as ranks among all.
  const std::vector<int>& ranks() const { return ranks_; }

  ~PeerConnections() { connector_.remove(*this); }
  PeerConnections(const PeerConnections&) = delete;
  PeerConnections& operator=(const PeerConnections&) = delete;

  // Performs the exchanges, at most one for each peer, and returns when all are complete. Both
  // ranks of a pair pass the same slot, and each receives as many bytes as the other sends.
  void exchange(uint64_t slot, std::span<const PeerExchange> parts);
  // Shuts down all connections. An exchange in progress throws, and so do later ones; their
  // messages name no peer.
  void close();

  // The number of open connections, and of exchanges with a peer so far. Between operations only.
  struct Traffic {
    size_t connections = 0;
    uint64_t exchanges = 0;
  };
  Traffic traffic() const { return traffic_; }

 private:
  struct Header {
    uint64_t slot, bytes;
  };
  // Progress of one exchange, in bytes of header and data.
  struct Progress {
    Header out, in;
    size_t sent, received;
    int send_error;  // errno, or 0
  };
  void connect_missing(std::span<const PeerExchange> parts);
  bool send_available(const PeerExchange& part, Progress& progress);
  bool receive_available(const PeerExchange& part, Progress& progress);
  [[noreturn]] void fail_lost(const PeerExchange& part, const char* reason);
  void wait_for_any(std::span<const PeerExchange> parts, Clock::time_point last_progress);

  PeerConnector& connector_;
  std::vector<int> ranks_;
  int rank_, group_;
  Traffic traffic_;
  std::mutex mutex_;  // held by close() and while the sockets change
  bool closed_ = false;
  std::vector<FileDescriptor> sockets_;  // [peer]; empty until the first exchange
  std::vector<Progress> progress_;       // of the parts of one exchange
  std::vector<pollfd> polled_;
};

}  // namespace dltrain
