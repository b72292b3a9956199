#include "comm/socket.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"

namespace dltrain {
namespace {

struct AddressInfo {
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> list{nullptr, freeaddrinfo};
  int error = 0;
};

AddressInfo resolve(const std::string& address, int port, bool passive) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = passive ? AI_PASSIVE : 0;
  addrinfo* list = nullptr;
  AddressInfo info;
  info.error = getaddrinfo(address.empty() ? nullptr : address.c_str(),
                           std::to_string(port).c_str(), &hints, &list);
  info.list.reset(list);
  return info;
}

// Interval of the calls of `interrupted`.
constexpr std::chrono::milliseconds kPoll{200};

// Waits until `fd` is ready for `events`. Returns done, timeout or interrupted.
Transfer wait_ready(int fd, short events, Clock::time_point deadline,
                    const InterruptCheck& interrupted) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const auto left = time_until(deadline);
    const int ready =
        poll(&entry, 1, static_cast<int>((interrupted ? std::min(left, kPoll) : left).count()));
    if (ready > 0) return Transfer::done;
    if (ready < 0 && errno != EINTR) return Transfer::done;  // the following call reports the error
    if (interrupted && interrupted()) return Transfer::interrupted;
    if (ready == 0 && Clock::now() >= deadline) return Transfer::timeout;
  }
}

// Calls `move`, which sends or receives a part, until all bytes are done.
template <typename Byte, typename Move>
Transfer transfer(Byte* at, size_t bytes, int fd, short events, Clock::time_point deadline,
                  const InterruptCheck& interrupted, const Move& move) {
  while (bytes > 0) {
    const ssize_t moved = move(at, bytes);
    if (moved > 0) {
      at += moved;
      bytes -= static_cast<size_t>(moved);
    } else if (moved < 0 && errno == EAGAIN) {
      const Transfer ready = wait_ready(fd, events, deadline, interrupted);
      if (ready != Transfer::done) return ready;
    } else if (moved == 0 || errno != EINTR) {
      return Transfer::closed;
    }
  }
  return Transfer::done;
}

// Tries once. Returns 0 or errno.
int try_connect(const addrinfo& target, Clock::time_point deadline,
                const InterruptCheck& interrupted, FileDescriptor& result) {
  FileDescriptor fd(
      socket(target.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, target.ai_protocol));
  if (!fd) return errno;
  if (connect(fd.get(), target.ai_addr, target.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return errno;
    if (wait_ready(fd.get(), POLLOUT, deadline, interrupted) != Transfer::done) return ETIMEDOUT;
    int error = 0;
    socklen_t length = sizeof(error);
    if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
    if (error != 0) return error;
  }
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  result = std::move(fd);
  return 0;
}

// Returns 0 or errno.
int try_listen(const sockaddr* name, socklen_t length, FileDescriptor& result) {
  FileDescriptor fd(socket(name->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return errno;
  const int on = 1, off = 0;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  // Independent of the system's default.
  if (name->sa_family == AF_INET6) {
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  if (bind(fd.get(), name, length) != 0 || listen(fd.get(), SOMAXCONN) != 0) return errno;
  result = std::move(fd);
  return 0;
}

sockaddr_storage socket_name(int fd) {
  sockaddr_storage name{};
  socklen_t length = sizeof(name);
  check_internal(getsockname(fd, reinterpret_cast<sockaddr*>(&name), &length) == 0,
                 "getsockname: {}", std::strerror(errno));
  return name;
}

std::string numeric(const sockaddr_storage& name) {
  char text[NI_MAXHOST] = {};
  const int error = getnameinfo(reinterpret_cast<const sockaddr*>(&name), sizeof(name), text,
                                sizeof(text), nullptr, 0, NI_NUMERICHOST);
  check_internal(error == 0, "getnameinfo: {}", gai_strerror(error));
  // An IPv4 peer of a socket for IPv4 and IPv6.
  constexpr std::string_view kMapped = "::ffff:";
  const std::string_view address = text;
  const bool mapped = address.starts_with(kMapped) && address.find('.') != address.npos;
  return std::string(address.substr(mapped ? kMapped.size() : 0));
}

}  // namespace

std::chrono::milliseconds time_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  return std::clamp(left, std::chrono::milliseconds(0), std::chrono::milliseconds(3'600'000));
}

FileDescriptor listen_on(const std::string& address, int port, const std::string& setting) {
  FileDescriptor fd;
  int error = EADDRNOTAVAIL;
  // One socket for IPv6 and IPv4, unless the host has no IPv6.
  std::vector<const char*> names{address.c_str()};
  if (address.empty()) names = {"::", "0.0.0.0"};
  for (const char* name : names) {
    const AddressInfo info = resolve(name, port, true);
    if (info.error != 0) {
      fail(ExitCode::rank, "cannot listen on '{}': {}", address, gai_strerror(info.error));
    }
    for (const addrinfo* a = info.list.get(); a && error != 0; a = a->ai_next) {
      error = try_listen(a->ai_addr, a->ai_addrlen, fd);
    }
    if (error != EAFNOSUPPORT && error != EADDRNOTAVAIL) break;
  }
  if (error == 0) return fd;
  const std::string host = address.empty() ? "this host" : address;
  if (error == EADDRINUSE) {
    fail(ExitCode::rank, "port {} on {} is in use by another program{}", port, host,
         setting.empty() ? "" : "; choose another one with " + setting);
  }
  fail(ExitCode::rank, "cannot listen on {}: {}", endpoint_text(host, port), std::strerror(error));
}

void allow_descriptors(size_t count) {
  constexpr rlim_t kUsual = 512;
  static std::atomic<rlim_t> requested = 0;
  rlimit limit{};
  const rlim_t wanted = (requested += count) + kUsual;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
}

int bound_port(int fd) {
  const sockaddr_storage name = socket_name(fd);
  return ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(name).sin6_port
                                          : reinterpret_cast<const sockaddr_in&>(name).sin_port);
}

std::string local_address(int fd) {
  return numeric(socket_name(fd));
}

std::string peer_address(int fd) {
  sockaddr_storage name{};
  socklen_t length = sizeof(name);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&name), &length) != 0) {
    fail(ExitCode::rank, "the connection to the store was lost: {}", std::strerror(errno));
  }
  return numeric(name);
}

std::string endpoint_text(const std::string& address, int port) {
  const bool ambiguous = address.find(':') != address.npos;
  return fmt::format("{}{}{}:{}", ambiguous ? "[" : "", address, ambiguous ? "]" : "", port);
}

std::string resolve_problem(const std::string& address) {
  const AddressInfo info = resolve(address, 0, false);
  return info.error == 0 ? "" : gai_strerror(info.error);
}

bool is_loopback(const std::string& address) {
  return address == "localhost" || address.starts_with("127.") || address == "::1";
}

bool is_own_address(const std::string& address) {
  try {
    listen_on(address, 0);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::string listening_address(const std::string& address) {
  if (is_loopback(address)) return address;
  try {
    return is_loopback(local_address(listen_on(address, 0).get())) ? "" : address;
  } catch (const Error&) {
    return "";
  }
}

FileDescriptor connect_to(const std::string& address, int port, Clock::time_point deadline,
                          const RemoteName& remote, const InterruptCheck& interrupted) {
  auto pause = std::chrono::milliseconds(5);
  std::string reason;
  for (;;) {
    const AddressInfo info = resolve(address, port, false);
    if (info.error != 0 && info.error != EAI_AGAIN) {
      fail(ExitCode::rank, "cannot resolve the address '{}': {}", address,
           gai_strerror(info.error));
    }
    if (info.error != 0) reason = gai_strerror(info.error);
    for (const addrinfo* a = info.list.get(); a; a = a->ai_next) {
      FileDescriptor fd;
      const int error = try_connect(*a, deadline, interrupted, fd);
      if (error == 0) return fd;
      reason = std::strerror(error);
      if (error == EMFILE) {
        fail(ExitCode::usage, "cannot connect to {}: {} (ulimit -n)", remote.name, reason);
      }
      if (error == ECONNREFUSED && remote.listens) fail(ExitCode::rank, "{}", reason);
    }
    if (interrupted && interrupted()) {
      fail(ExitCode::stopped, "interrupted while trying to reach {} at {}: {}", remote.name,
           endpoint_text(address, port), reason);
    }
    if (Clock::now() + pause >= deadline) {
      fail(ExitCode::rank, "cannot reach {} at {}: {}{}", remote.name, endpoint_text(address, port),
           reason, remote.hint.empty() ? "" : " (" + remote.hint + ")");
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kPoll);
  }
}

Transfer send_all(int fd, const void* data, size_t bytes, Clock::time_point deadline,
                  const InterruptCheck& interrupted) {
  return transfer(static_cast<const char*>(data), bytes, fd, POLLOUT, deadline, interrupted,
                  [fd](const char* at, size_t left) { return send(fd, at, left, MSG_NOSIGNAL); });
}

Transfer receive_all(int fd, void* data, size_t bytes, Clock::time_point deadline,
                     const InterruptCheck& interrupted) {
  return transfer(static_cast<char*>(data), bytes, fd, POLLIN, deadline, interrupted,
                  [fd](char* at, size_t left) { return recv(fd, at, left, 0); });
}

}  // namespace dltrain
