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
#include <unistd.h>

#include "base/error.h"
#include "base/host_name.h"
#include "comm/peer_connections.h"

namespace dltrain {
namespace {

// The longest wait for the rest of a handshake whose first bytes have come.
constexpr std::chrono::milliseconds kHandshakeTime{200};
// The time for which the system does not report connections without any bytes, in seconds.
constexpr int kSilentSeconds = 60;
// The interval at which a rank that waits for a peer's connection checks that the peer exists.
constexpr std::chrono::milliseconds kLookInterval{500};

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
  setsockopt(listener_.get(), IPPROTO_TCP, TCP_DEFER_ACCEPT, &kSilentSeconds,
             sizeof kSilentSeconds);
  std::random_device random;
  std::string endpoint = fmt::format("{} {}", host, bound_port(listener_.get()));
  for (uint32_t& word : token_) endpoint += fmt::format(" {}", word = random());
  endpoint += fmt::format(" {}", options.size);
  if (store.put_new(key(std::to_string(options.rank)), endpoint) != endpoint) {
    fail(ExitCode::usage,
         "rank {} was started twice, the second time as process {} on {}; each process needs a "
         "RANK of its own",
         options.rank, getpid(), host_name());
  }
  wait_for_all();
}

// Throws Error(usage) if another rank counts the ranks differently.
void PeerConnector::check_size(int rank, const std::string& size) const {
  if (size == std::to_string(options_.size)) return;
  const bool first = rank < options_.rank;
  fail(ExitCode::usage,
       "the ranks were started with different WORLD_SIZE: {} on rank {} and {} on rank {}",
       first ? size : std::to_string(options_.size), std::min(rank, options_.rank),
       first ? std::to_string(options_.size) : size, std::max(rank, options_.rank));
}

// Rank 0 waits for the address of each rank and tells the others that all are there, so that these
// need one request.
void PeerConnector::wait_for_all() {
  const auto deadline = Clock::now() + options_.connect_timeout;
  const std::string size = std::to_string(options_.size);
  if (options_.rank != 0) {
    if (const auto told = store_.find(key("all"), options_.connect_timeout)) {
      return check_size(0, *told);
    }
  }
  std::string missing;
  for (int rank = 0; rank < options_.size; ++rank) {
    const auto endpoint = store_.find(key(std::to_string(rank)), time_until(deadline));
    if (!endpoint) {
      missing += fmt::format(" {}", rank);
      continue;
    }
    const std::string other = endpoint->substr(endpoint->rfind(' ') + 1);
    if (options_.rank == 0 && other != size) store_.set(key("all"), size);  // it fails too
    check_size(rank, other);
  }
  if (!missing.empty()) {
    fail(ExitCode::rank, "rank {} of {} (group '{}') waited {} ms; these ranks did not connect:{}",
         options_.rank, options_.size, options_.group, options_.connect_timeout.count(), missing);
  }
  if (options_.rank == 0) store_.set(key("all"), size);
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
  auto next_look = Clock::now() + kLookInterval;
  const std::pair key{static_cast<uint32_t>(group), static_cast<uint32_t>(peer)};
  std::unique_lock lock(mutex_);
  for (;;) {
    if (auto found = accepted_.extract(key)) return std::move(found.mapped());
    if (closed_) break;
    if (Clock::now() >= deadline) fail_silent(peer, options_.timeout);
    if (Clock::now() >= next_look) {
      lock.unlock();
      if (has_gone(peer)) fail(ExitCode::rank, "lost rank {}", peer);
      lock.lock();
      next_look = Clock::now() + kLookInterval;
      continue;
    }
    if (accepting_) {
      changed_.wait_until(lock, std::min(deadline, next_look));
      continue;
    }
    accepting_ = true;
    lock.unlock();
    const int error = accept_one(std::min(deadline, next_look));
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

PeerConnector::Endpoint PeerConnector::endpoint_of(int peer) {
  std::istringstream text(store_.get(key(std::to_string(peer)), options_.connect_timeout));
  Endpoint endpoint;
  text >> endpoint.host >> endpoint.port;
  for (uint32_t& word : endpoint.token) text >> word;
  if (!text) fail(ExitCode::rank, "rank {} runs a different version of dltrain", peer);
  return endpoint;
}

// A rank that has ended before its first exchange has no connection that shows this, but its port
// refuses connections.
bool PeerConnector::has_gone(int peer) {
  const Endpoint endpoint = endpoint_of(peer);
  const auto deadline = Clock::now() + kLookInterval;
  try {
    connect_to(endpoint.host, endpoint.port, deadline, {.name = "a rank", .listens = true});
  } catch (const Error& error) {
    return error.code() == ExitCode::rank && Clock::now() < deadline;
  }
  return false;
}

FileDescriptor PeerConnector::connect_to_peer(int peer, int group) {
  const Endpoint endpoint = endpoint_of(peer);
  const Handshake handshake{endpoint.token, static_cast<uint32_t>(options_.rank),
                            static_cast<uint32_t>(group)};
  const auto deadline = Clock::now() + options_.connect_timeout;
  const auto is_closed = [this] {
    const std::lock_guard lock(mutex_);
    return closed_;
  };
  try {
    FileDescriptor socket =
        connect_to(endpoint.host, endpoint.port, deadline,
                   {.name = fmt::format("rank {}", peer), .listens = true}, is_closed);
    if (send_all(socket.get(), &handshake, sizeof handshake, deadline) == Transfer::done) {
      return socket;
    }
  } catch (const Error& error) {
    if (error.code() == ExitCode::stopped) fail_closed();
    fail(error.code(), "lost rank {} while connecting to it: {}", peer, error.what());
  }
  fail(ExitCode::rank, "lost rank {} while connecting to it", peer);
}

// Waits for a connection. The system reports it when its first bytes have come, or after
// kSilentSeconds, so a stranger that sends nothing or not enough delays the ranks by kHandshakeTime
// at most. Returns 0 or errno.
int PeerConnector::accept_one(Clock::time_point deadline) {
  pollfd entry{listener_.get(), POLLIN, 0};
  if (poll(&entry, 1, static_cast<int>(time_until(deadline).count())) <= 0) return 0;
  FileDescriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket) return errno;  // the peer has closed the connection, or there is no descriptor
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  Handshake handshake{};
  const Transfer result =
      receive_all(socket.get(), &handshake, sizeof handshake, Clock::now() + kHandshakeTime);
  if (result != Transfer::done || handshake.token != token_) return 0;
  const std::lock_guard lock(mutex_);
  accepted_[{handshake.group, handshake.rank}] = std::move(socket);
  return 0;
}

}  // namespace dltrain
