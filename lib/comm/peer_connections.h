// Data exchange between the ranks of a group. Each pair of ranks has its own TCP connection, which
// the calling thread writes and reads itself: there is no handshake and no change of threads, and
// the received data is still in the cache of the core that reads it (docs/performance.md).
//
// Wire format: slot and length as two 64-bit numbers in the machine's byte order, then the data.
// The data of a pair arrives in order, so an unexpected slot means that the two ranks issue
// different operations; this is detected at once.
//
// Memory: nothing is allocated after construction. Errors: Error(rank) naming the peer that is
// lost, does not answer within the timeout, or is at a different operation. After an error the
// object can no longer be used.
//
// Threads: exchange() by one thread at a time, close() by any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include <poll.h>

#include "comm/socket.h"

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
  // `sockets[p]` is non-blocking and connected to peer p; the entry of this rank is empty.
  // `ranks[p]` is the rank of peer p among all ranks, for messages. `timeout` is the longest wait
  // without progress.
  PeerConnections(std::vector<FileDescriptor> sockets, std::vector<int> ranks, int rank,
                  std::chrono::milliseconds timeout);

  // The place of this rank in the group, and the size of the group.
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  // The members of the group, as ranks among all.
  const std::vector<int>& ranks() const { return ranks_; }

  // Performs the exchanges, at most one for each peer, and returns when all are complete. Both
  // ranks of a pair pass the same slot, and each receives as many bytes as the other sends.
  void exchange(uint64_t slot, std::span<const PeerExchange> parts);
  // Shuts down all connections. An exchange in progress throws, and so do later ones; their
  // messages name no peer.
  void close();

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
  bool send_available(const PeerExchange& part, Progress& progress);
  bool receive_available(const PeerExchange& part, Progress& progress);
  [[noreturn]] void fail_lost(const PeerExchange& part, const char* reason) const;
  void wait_for_any(std::span<const PeerExchange> parts, Clock::time_point last_progress);

  std::vector<FileDescriptor> sockets_;
  std::vector<int> ranks_;
  int rank_;
  std::chrono::milliseconds timeout_;
  std::atomic<bool> closed_ = false;
  std::vector<Progress> progress_;  // of the parts of one exchange
  std::vector<pollfd> polled_;
};

}  // namespace dltrain
