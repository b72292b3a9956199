#include "comm/peer_connector.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <sstream>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/error.h"
#include "comm/peer_connections.h"

namespace dltrain {
namespace {

// If more connections than this have sent no complete handshake, the oldest ones are closed.
constexpr size_t kMaxPendingConnections = 1024;

std::chrono::milliseconds time_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  return std::clamp(left, std::chrono::milliseconds(0), std::chrono::milliseconds(3'600'000));
}

}  // namespace

void fail_silent(int peer, std::chrono::milliseconds timeout) {
  fail(ExitCode::rank,
       "rank {} did not answer within {} ms: it hangs, is slower than the timeout allows, or has "
       "issued another operation",
       peer, timeout.count());
}

PeerConnector::PeerConnector(StoreClient& store, const HostGroupOptions& options)
    : store_(store), options_(options) {
  check_internal(options.size > 1 && options.rank >= 0 && options.rank < options.size,
                 "rank {} of {}", options.rank, options.size);
  // At most one connection to each peer for a group and its parts, and those of the store.
  allow_descriptors(4 * static_cast<size_t>(options.size));
  const std::string host = options.address.empty() ? store.local_address() : options.address;
  listener_ = listen_on(host, 0);
  std::random_device random;
  std::string endpoint = fmt::format("{} {}", host, bound_port(listener_.get()));
  for (uint32_t& word : token_) endpoint += fmt::format(" {}", word = random());
  store.set(key(std::to_string(options.rank)), endpoint);
  wait_for_all();
}

// Rank 0 waits for the address of each rank and tells the others that all are there, so that these
// need one request.
void PeerConnector::wait_for_all() {
  const auto deadline = Clock::now() + options_.connect_timeout;
  const bool told = options_.rank != 0 && store_.find(key("all"), options_.connect_timeout);
  std::string missing;
  for (int rank = 0; rank < options_.size && !told; ++rank) {
    if (!store_.find(key(std::to_string(rank)), time_until(deadline))) {
      missing += fmt::format(" {}", rank);
    }
  }
  if (!missing.empty()) {
    fail(ExitCode::rank, "rank {} of {} (group '{}') waited {} ms; these ranks did not connect:{}",
         options_.rank, options_.size, options_.group, options_.connect_timeout.count(), missing);
  }
  if (options_.rank == 0) store_.set(key("all"), "1");
}

void PeerConnector::close(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!closed_) reason_ = reason;
  closed_ = true;
  shutdown(listener_.get(), SHUT_RDWR);  // wakes the thread that accepts
  for (PeerConnections* connections : connections_) connections->close();
  changed_.notify_all();
}

void PeerConnector::fail_closed() {
  const std::lock_guard lock(mutex_);
  fail(ExitCode::rank, "this rank has closed its connections{}{}", reason_.empty() ? "" : ": ",
       reason_);
}

void PeerConnector::add(PeerConnections& connections) {
  const std::lock_guard lock(mutex_);
  connections_.push_back(&connections);
  if (closed_) connections.close();
}

void PeerConnector::remove(PeerConnections& connections) {
  const std::lock_guard lock(mutex_);
  std::erase(connections_, &connections);
}

FileDescriptor PeerConnector::connect(int peer, int group) {
  if (peer < options_.rank) return connect_to_peer(peer, group);
  const auto deadline = Clock::now() + options_.timeout;
  const std::pair key{static_cast<uint32_t>(group), static_cast<uint32_t>(peer)};
  std::unique_lock lock(mutex_);
  for (;;) {
    if (auto found = accepted_.extract(key)) return std::move(found.mapped());
    if (closed_) break;
    if (Clock::now() >= deadline) fail_silent(peer, options_.timeout);
    if (accepting_) {
      changed_.wait_until(lock, deadline);
      continue;
    }
    accepting_ = true;
    lock.unlock();
    const int error = receive_handshakes(deadline);
    lock.lock();
    accepting_ = false;
    changed_.notify_all();
    if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) {
      fail(ExitCode::rank, "cannot accept a connection of another rank: {}", std::strerror(error));
    }
  }
  lock.unlock();
  fail_closed();
}

FileDescriptor PeerConnector::connect_to_peer(int peer, int group) {
  std::istringstream endpoint(store_.get(key(std::to_string(peer)), options_.connect_timeout));
  std::string host;
  int port = 0;
  Handshake handshake{{}, static_cast<uint32_t>(options_.rank), static_cast<uint32_t>(group)};
  endpoint >> host >> port;
  for (uint32_t& word : handshake.token) endpoint >> word;
  if (!endpoint) fail(ExitCode::rank, "rank {} runs a different version of dltrain", peer);
  const auto deadline = Clock::now() + options_.connect_timeout;
  const auto is_closed = [this] {
    const std::lock_guard lock(mutex_);
    return closed_;
  };
  try {
    FileDescriptor socket = connect_to(
        host, port, deadline, {.name = fmt::format("rank {}", peer), .listens = true}, is_closed);
    if (send_all(socket.get(), &handshake, sizeof handshake, deadline) == Transfer::done) {
      return socket;
    }
  } catch (const Error& error) {
    if (error.code() == ExitCode::stopped) fail_closed();
    fail(error.code(), "lost rank {} while connecting to it: {}", peer, error.what());
  }
  fail(ExitCode::rank, "lost rank {} while connecting to it", peer);
}

// Waits for connections and handshakes, and receives what has come. Returns 0 or errno.
int PeerConnector::receive_handshakes(Clock::time_point deadline) {
  std::vector<pollfd> polled{{listener_.get(), POLLIN, 0}};
  for (const PendingConnection& pending : pending_) {
    polled.push_back({pending.socket.get(), POLLIN, 0});
  }
  if (poll(polled.data(), polled.size(), static_cast<int>(time_until(deadline).count())) <= 0) {
    return 0;
  }
  for (size_t i = pending_.size(); i-- > 0;) {
    if (polled[i + 1].revents != 0 && !read_handshake(pending_[i])) {
      pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  if (polled[0].revents == 0) return 0;
  FileDescriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket) return errno;  // the peer has closed the connection, or there is no descriptor
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (pending_.size() == kMaxPendingConnections) pending_.erase(pending_.begin());
  pending_.push_back({.socket = std::move(socket), .handshake = {}});
  return 0;
}

// Returns false when the connection is no longer pending: it is closed, or its handshake is
// complete and, with the right token, the socket was moved to accepted_.
bool PeerConnector::read_handshake(PendingConnection& pending) {
  auto* const bytes = reinterpret_cast<char*>(&pending.handshake);
  const ssize_t got =
      recv(pending.socket.get(), bytes + pending.received, sizeof(Handshake) - pending.received, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (got <= 0) return false;
  pending.received += static_cast<size_t>(got);
  if (pending.received < sizeof(Handshake)) return true;
  if (pending.handshake.token == token_) {
    const std::lock_guard lock(mutex_);
    accepted_[{pending.handshake.group, pending.handshake.rank}] = std::move(pending.socket);
  }
  return false;
}

}  // namespace dltrain
