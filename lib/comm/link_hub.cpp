#include "comm/link_hub.h"

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

// More connections that say nothing are not the ranks': the oldest go.
constexpr size_t kMostGuests = 1024;

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 3'600'000));
}

}  // namespace

LinkHub::LinkHub(const std::string& host) : listener_(listen_on(host, 0)) {
  check_internal(host.size() < card_.host.size(), "an address of {} bytes", host.size());
  std::copy(host.begin(), host.end(), card_.host.begin());
  card_.port = static_cast<uint32_t>(bound_port(listener_.get()));
  std::random_device random;
  for (uint32_t& word : card_.token) word = random();
}

std::vector<FileDescriptor> LinkHub::connect(std::span<const LinkCard> cards, int rank,
                                             std::span<const int> ranks, int group,
                                             Clock::time_point deadline) {
  std::vector<FileDescriptor> sockets(ranks.size());
  // Calls first: they need nobody's answer.
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] >= rank) continue;
    sockets[i] = call(cards[static_cast<size_t>(ranks[i])], ranks[i], rank, group, deadline);
  }
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] > rank) sockets[i] = take(ranks[i], group, deadline);
  }
  return sockets;
}

FileDescriptor LinkHub::call(const LinkCard& card, int peer, int rank, int group,
                             Clock::time_point deadline) const {
  FileDescriptor socket = connect_to(card.host.data(), static_cast<int>(card.port), deadline,
                                     {fmt::format("rank {}", peer)});
  const Greeting greeting{card.token, static_cast<uint32_t>(rank), static_cast<uint32_t>(group)};
  if (send_all(socket.get(), &greeting, sizeof greeting, deadline) != Transfer::done) {
    fail(ExitCode::rank, "lost rank {} while connecting to it", peer);
  }
  return socket;
}

FileDescriptor LinkHub::take(int peer, int group, Clock::time_point deadline) {
  const std::pair key{static_cast<uint32_t>(group), static_cast<uint32_t>(peer)};
  for (;;) {
    if (const auto found = waiting_.find(key); found != waiting_.end()) {
      FileDescriptor socket = std::move(found->second);
      waiting_.erase(found);
      return socket;
    }
    const int left = milliseconds_until(deadline);
    if (left == 0) fail(ExitCode::rank, "waited in vain for rank {} to connect", peer);
    receive_guests(left);
  }
}

void LinkHub::receive_guests(int timeout_ms) {
  std::vector<pollfd> polled{{listener_.get(), POLLIN, 0}};
  for (const Guest& guest : guests_) polled.push_back({guest.socket.get(), POLLIN, 0});
  if (poll(polled.data(), polled.size(), timeout_ms) <= 0) return;
  for (size_t i = guests_.size(); i-- > 0;) {
    if (polled[i + 1].revents != 0 && !listen_to(guests_[i])) {
      guests_.erase(guests_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  if (polled[0].revents == 0) return;
  FileDescriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      fail(ExitCode::rank, "cannot take a connection of another rank: {}", std::strerror(errno));
    }
    return;  // gone again
  }
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (guests_.size() == kMostGuests) guests_.erase(guests_.begin());
  guests_.push_back({.socket = std::move(socket), .greeting = {}});
}

// Whether the guest may go on with its greeting; one that has finished it well is moved to
// waiting_.
bool LinkHub::listen_to(Guest& guest) {
  auto* const bytes = reinterpret_cast<char*>(&guest.greeting);
  const ssize_t got =
      recv(guest.socket.get(), bytes + guest.received, sizeof(Greeting) - guest.received, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (got <= 0) return false;
  guest.received += static_cast<size_t>(got);
  if (guest.received < sizeof(Greeting)) return true;
  if (guest.greeting.token == card_.token) {
    waiting_[{guest.greeting.group, guest.greeting.rank}] = std::move(guest.socket);
  }
  return false;
}

}  // namespace dltrain
