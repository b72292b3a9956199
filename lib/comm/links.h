// Messages between the ranks of a group: each pair has a TCP connection of its own, which the
// thread that waits writes and reads itself. A message needs no handshake and no change of thread,
// which is most of the time of one of a few KiB over Gloo, and what has come is still in the cache
// of the core that reads it (docs/performance.md has the figures).
//
// On the wire: slot and length as two 64-bit numbers of the machine's byte order, then the bytes.
// Messages of a pair arrive in order, so a slot that is not the expected one means that the ranks
// issue different operations, which is told at once.
//
// Memory: nothing is allocated after construction. Errors: Error(rank) naming the peer that is
// lost, silent for the timeout, or at another operation. After that the object is of no more use.
//
// Threads: exchange by one at a time, close by any.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include <poll.h>

#include "comm/socket.h"
#include "comm/transport.h"

namespace dltrain {

class Links {
 public:
  // sockets[p]: non-blocking and connected to peer p (none at the own place), whom messages call
  // names[p]. The timeout is the longest wait without any progress.
  Links(std::vector<FileDescriptor> sockets, std::vector<int> names,
        std::chrono::milliseconds timeout);

  // As Transport::exchange.
  void exchange(uint64_t slot, std::span<const Letter> letters);
  // Breaks all connections; an exchange that is under way throws, and so do later ones. They name
  // no peer: this rank has given up.
  void close();

 private:
  struct Header {
    uint64_t slot, bytes;
  };
  // How far a letter is, counted in bytes of header and content.
  struct Progress {
    Header out, in;
    size_t sent, received;
    int send_error;  // errno; 0: none
  };
  bool push(const Letter& letter, Progress& progress);
  bool pull(const Letter& letter, Progress& progress);
  [[noreturn]] void lost(const Letter& letter, const char* reason) const;
  void wait_for_any(std::span<const Letter> letters, Clock::time_point last_progress);

  std::vector<FileDescriptor> sockets_;
  std::vector<int> names_;
  std::chrono::milliseconds timeout_;
  std::atomic<bool> closed_ = false;
  std::vector<Progress> progress_;  // of the letters of one exchange
  std::vector<pollfd> polled_;
};

}  // namespace dltrain
