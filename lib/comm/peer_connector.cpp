#include "comm/peer_connector.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/error.h"

namespace dltrain {
namespace {

// If more connections than this have sent no complete handshake, the oldest ones are closed.
constexpr size_t kMaxPendingConnections = 1024;

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 3'600'000));
}

}  // namespace

PeerConnector::PeerConnector(StoreClient& store, const HostGroupOptions& options)
    : options_(options), addresses_(static_cast<size_t>(options.size)) {
  check_internal(options.size > 1 && options.rank >= 0 && options.rank < options.size,
                 "rank {} of {}", options.rank, options.size);
  // Connections of the group and of its parts, and those of the store if this process serves it.
  allow_descriptors(4 * addresses_.size());
  const std::string host = options.address.empty() ? store.local_address() : options.address;
  listener_ = listen_on(host, 0);
  PeerEndpoint& own = addresses_[static_cast<size_t>(options.rank)];
  check_internal(host.size() < own.host.size(), "an address of {} bytes", host.size());
  std::copy(host.begin(), host.end(), own.host.begin());
  own.port = static_cast<uint32_t>(bound_port(listener_.get()));
  std::random_device random;
  for (uint32_t& word : own.token) word = random();
  gather_addresses(store);
}

void PeerConnector::gather_addresses(StoreClient& store) {
  const auto key = [&](size_t rank) { return fmt::format("links/{}/{}", options_.group, rank); };
  const auto own = static_cast<size_t>(options_.rank);
  store.set(key(own), {reinterpret_cast<const char*>(&addresses_[own]), sizeof(PeerEndpoint)});
  const auto deadline = Clock::now() + options_.connect_timeout;
  std::string missing;
  for (size_t rank = 0; rank < addresses_.size(); ++rank) {
    const auto value =
        store.find(key(rank), std::chrono::milliseconds(milliseconds_until(deadline)));
    if (!value) {
      missing += fmt::format(" {}", rank);
    } else if (value->size() != sizeof(PeerEndpoint)) {
      fail(ExitCode::rank, "rank {} runs a different version of dltrain", rank);
    } else {
      std::memcpy(&addresses_[rank], value->data(), sizeof(PeerEndpoint));
      addresses_[rank].host.back() = '\0';
    }
  }
  if (missing.empty()) return;
  fail(ExitCode::rank, "rank {} of {} (group '{}') waited {} ms; these ranks did not connect:{}",
       options_.rank, options_.size, options_.group, options_.connect_timeout.count(), missing);
}

std::shared_ptr<PeerConnections> PeerConnector::connect(std::span<const int> ranks, int group) {
  const auto deadline = Clock::now() + options_.connect_timeout;
  std::vector<FileDescriptor> sockets(ranks.size());
  // Outgoing connections first: they do not wait for the peer.
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < options_.rank) sockets[i] = connect_peer(ranks[i], group, deadline);
  }
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] > options_.rank) sockets[i] = accept_from(ranks[i], group, deadline);
  }
  const auto position = std::find(ranks.begin(), ranks.end(), options_.rank) - ranks.begin();
  auto connections =
      std::make_shared<PeerConnections>(std::move(sockets), std::vector(ranks.begin(), ranks.end()),
                                        static_cast<int>(position), options_.timeout);
  const std::lock_guard lock(mutex_);
  if (closed_) connections->close();
  std::erase_if(connections_,
                [](const std::weak_ptr<PeerConnections>& one) { return one.expired(); });
  connections_.push_back(connections);
  return connections;
}

void PeerConnector::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  for (const std::weak_ptr<PeerConnections>& one : connections_) {
    if (const std::shared_ptr<PeerConnections> connections = one.lock()) connections->close();
  }
}

FileDescriptor PeerConnector::connect_peer(int peer, int group, Clock::time_point deadline) const {
  const PeerEndpoint& address = addresses_[static_cast<size_t>(peer)];
  FileDescriptor socket = connect_to(address.host.data(), static_cast<int>(address.port), deadline,
                                     {fmt::format("rank {}", peer)});
  const Handshake handshake{address.token, static_cast<uint32_t>(options_.rank),
                            static_cast<uint32_t>(group)};
  if (send_all(socket.get(), &handshake, sizeof handshake, deadline) != Transfer::done) {
    fail(ExitCode::rank, "lost rank {} while connecting to it", peer);
  }
  return socket;
}

FileDescriptor PeerConnector::accept_from(int peer, int group, Clock::time_point deadline) {
  const std::pair key{static_cast<uint32_t>(group), static_cast<uint32_t>(peer)};
  for (;;) {
    if (auto found = waiting_.extract(key)) return std::move(found.mapped());
    const int left = milliseconds_until(deadline);
    if (left == 0) {
      fail(ExitCode::rank, "rank {} did not connect to rank {} within {} ms", peer, options_.rank,
           options_.connect_timeout.count());
    }
    receive_handshakes(left);
  }
}

void PeerConnector::receive_handshakes(int timeout_ms) {
  std::vector<pollfd> polled{{listener_.get(), POLLIN, 0}};
  for (const PendingConnection& pending : pending_)
    polled.push_back({pending.socket.get(), POLLIN, 0});
  if (poll(polled.data(), polled.size(), timeout_ms) <= 0) return;
  for (size_t i = pending_.size(); i-- > 0;) {
    if (polled[i + 1].revents != 0 && !read_handshake(pending_[i])) {
      pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  if (polled[0].revents == 0) return;
  FileDescriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      fail(ExitCode::rank, "cannot accept a connection of another rank: {}", std::strerror(errno));
    }
    return;  // the peer has closed the connection
  }
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (pending_.size() == kMaxPendingConnections) pending_.erase(pending_.begin());
  pending_.push_back({.socket = std::move(socket), .handshake = {}});
}

// Returns false when the connection is no longer pending: it is closed, or its handshake is
// complete and, with the right token, the socket was moved to waiting_.
bool PeerConnector::read_handshake(PendingConnection& pending) {
  auto* const bytes = reinterpret_cast<char*>(&pending.handshake);
  const ssize_t got =
      recv(pending.socket.get(), bytes + pending.received, sizeof(Handshake) - pending.received, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (got <= 0) return false;
  pending.received += static_cast<size_t>(got);
  if (pending.received < sizeof(Handshake)) return true;
  if (pending.handshake.token == addresses_[static_cast<size_t>(options_.rank)].token) {
    waiting_[{pending.handshake.group, pending.handshake.rank}] = std::move(pending.socket);
  }
  return false;
}

}  // namespace dltrain
