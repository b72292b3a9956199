#include "comm/peer_connections.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/socket.h>
#include <sys/uio.h>

#include "base/error.h"

namespace dltrain {
namespace {

// Number of times that the sockets are polled without blocking (about 10 µs) before the thread
// sleeps. Waking up takes three times as long.
constexpr int kSpins = 20;

// The unsent or unreceived rest of a header and its data, of which `done` bytes are complete.
struct RemainingBytes {
  iovec parts[2];
  msghdr message{};

  RemainingBytes(void* header, size_t header_bytes, void* data, size_t bytes, size_t done) {
    const size_t of_header = std::min(done, header_bytes), of_data = done - of_header;
    parts[0] = {static_cast<char*>(header) + of_header, header_bytes - of_header};
    parts[1] = {static_cast<char*>(data) + of_data, bytes - of_data};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
  }
};

bool is_temporary(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

}  // namespace

PeerConnections::PeerConnections(PeerConnector& connector, std::span<const int> ranks, int group)
    : connector_(connector),
      ranks_(ranks.begin(), ranks.end()),
      rank_(static_cast<int>(
          std::lower_bound(ranks.begin(), ranks.end(), connector.options().rank) - ranks.begin())),
      group_(group),
      sockets_(ranks.size()) {
  progress_.resize(sockets_.size());
  polled_.reserve(sockets_.size());
  connector.add(*this);
}

void PeerConnections::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  for (const FileDescriptor& socket : sockets_) {
    if (socket) shutdown(socket.get(), SHUT_RDWR);
  }
}

// Connections to lower ranks first: they do not wait for the peer.
void PeerConnections::connect_missing(std::span<const PeerExchange> parts) {
  for (const bool lower : {true, false}) {
    for (const PeerExchange& part : parts) {
      const auto peer = static_cast<size_t>(part.peer);
      if (sockets_[peer] || (part.peer < rank_) != lower) continue;
      FileDescriptor socket = connector_.connect(ranks_[peer], group_);
      const std::lock_guard lock(mutex_);
      if (closed_) shutdown(socket.get(), SHUT_RDWR);  // closed meanwhile
      sockets_[peer] = std::move(socket);
      ++traffic_.connections;
    }
  }
}

void PeerConnections::fail_lost(const PeerExchange& part, const char* reason) {
  std::unique_lock lock(mutex_);
  const bool closed = closed_;
  lock.unlock();
  if (closed) connector_.fail_closed();
  fail(ExitCode::rank, "lost rank {} ({})", ranks_[static_cast<size_t>(part.peer)], reason);
}

// Sends what the socket takes. Returns true if any bytes were sent.
bool PeerConnections::send_available(const PeerExchange& part, Progress& progress) {
  const size_t total = sizeof(Header) + part.out_bytes;
  if (progress.sent == total || progress.send_error != 0) return false;
  RemainingBytes remaining(&progress.out, sizeof(Header), const_cast<void*>(part.out),
                           part.out_bytes, progress.sent);
  const ssize_t sent = sendmsg(sockets_[static_cast<size_t>(part.peer)].get(), &remaining.message,
                               MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0) {
    progress.sent += static_cast<size_t>(sent);
    return sent > 0;
  }
  if (!is_temporary(errno)) progress.send_error = errno;
  return false;
}

// Receives what has arrived. Returns true if any bytes were received.
bool PeerConnections::receive_available(const PeerExchange& part, Progress& progress) {
  const size_t total = sizeof(Header) + part.in_bytes;
  if (progress.received == total) return false;
  RemainingBytes remaining(&progress.in, sizeof(Header), part.in, part.in_bytes, progress.received);
  const ssize_t got =
      recvmsg(sockets_[static_cast<size_t>(part.peer)].get(), &remaining.message, MSG_DONTWAIT);
  if (got < 0) {
    const int error = errno;
    if (is_temporary(error)) return false;
    fail_lost(part, std::strerror(error));
  }
  if (got == 0) fail_lost(part, "it closed the connection");
  const bool had_header = progress.received >= sizeof(Header);
  progress.received += static_cast<size_t>(got);
  if (!had_header && progress.received >= sizeof(Header) &&
      (progress.in.slot != progress.out.slot || progress.in.bytes != part.in_bytes)) {
    fail(ExitCode::rank, "rank {} has issued another operation",
         ranks_[static_cast<size_t>(part.peer)]);
  }
  return true;
}

void PeerConnections::wait_for_any(std::span<const PeerExchange> parts,
                                   Clock::time_point last_progress) {
  polled_.clear();
  int silent = -1;
  const std::chrono::milliseconds timeout = connector_.options().timeout;
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool sends = progress_[i].sent < sizeof(Header) + parts[i].out_bytes;
    const bool receives = progress_[i].received < sizeof(Header) + parts[i].in_bytes;
    if (!sends && !receives) continue;
    const auto peer = static_cast<size_t>(parts[i].peer);
    if (silent < 0) silent = ranks_[peer];
    const auto events = static_cast<short>((sends ? POLLOUT : 0) | (receives ? POLLIN : 0));
    polled_.push_back({sockets_[peer].get(), events, 0});
  }
  for (;;) {
    const int ready = poll(polled_.data(), polled_.size(),
                           static_cast<int>(time_until(last_progress + timeout).count()));
    if (ready > 0) return;
    if (ready < 0 && errno != EINTR) return;  // the next call on the socket reports the error
    if (ready == 0 && Clock::now() >= last_progress + timeout) fail_silent(silent, timeout);
  }
}

void PeerConnections::exchange(uint64_t slot, std::span<const PeerExchange> parts) {
  connect_missing(parts);
  traffic_.exchanges += parts.size();
  for (size_t i = 0; i < parts.size(); ++i) {
    progress_[i] = {
        .out = {slot, parts[i].out_bytes}, .in = {}, .sent = 0, .received = 0, .send_error = 0};
  }
  Clock::time_point last_progress = Clock::now();
  int spins = 0;
  for (;;) {
    bool moved = false, done = true;
    for (size_t i = 0; i < parts.size(); ++i) {
      const bool sent_any = send_available(parts[i], progress_[i]),
                 received_any = receive_available(parts[i], progress_[i]);
      // Received data may explain why sending fails (a mismatch), so it is read first.
      if (progress_[i].send_error != 0 && !received_any) {
        fail_lost(parts[i], std::strerror(progress_[i].send_error));
      }
      moved = moved || sent_any || received_any;
      done = done && progress_[i].sent == sizeof(Header) + parts[i].out_bytes &&
             progress_[i].received == sizeof(Header) + parts[i].in_bytes;
    }
    if (done) return;
    if (moved) {
      last_progress = Clock::now();
      spins = 0;
    }
    if (++spins > kSpins) wait_for_any(parts, last_progress);
  }
}

}  // namespace dltrain
