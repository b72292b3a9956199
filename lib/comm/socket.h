// Helpers for TCP sockets: an owned descriptor, listening, connecting with a deadline, transfers
// with a deadline, and addresses.
//
// Threads: functions without shared state. Nothing here raises SIGPIPE.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "base/file_descriptor.h"

namespace dltrain {

using Clock = std::chrono::steady_clock;
// Returns the time until a deadline, rounded up, from 0 to an hour.
std::chrono::milliseconds time_until(Clock::time_point deadline);

// Listens on `address`:`port` (numeric address or host name; empty: all IPv4 and IPv6 addresses of
// this host; port 0: any free port). The descriptor is non-blocking and not inherited by child
// processes. Throws Error(rank), for example if the port is in use; it then names `setting`, which
// chooses the port, if given.
FileDescriptor listen_on(const std::string& address, int port, const std::string& setting = "");
// Raises the limit of open descriptors by `count`, in addition to those of a usual program and of
// earlier calls, as far as the system's hard limit allows.
void allow_descriptors(size_t count);
// Returns the port that a socket is bound to.
int bound_port(int fd);
// Formats "10.0.0.1:29500" or "[fd00::1]:29500" for messages.
std::string endpoint_text(const std::string& address, int port);
// Returns the numeric address of this end of a connection, which peers on the same network reach.
std::string local_address(int fd);
// Returns the numeric address of the other end.
std::string peer_address(int fd);

// Returns why an address or host name cannot be resolved; empty if it can.
std::string resolve_problem(const std::string& address);

// Returns true if only this host reaches a socket that listens on `address`: localhost, 127.0.0.0/8
// and ::1. Host names are not resolved.
bool is_loopback(const std::string& address);
// Returns true if `address` is an address of this host.
bool is_own_address(const std::string& address);
// Returns the address to listen on so that others reach it at `address`: the address itself if it
// is one of this host that others can reach, otherwise (a service in front of this host, a name
// that resolves to 127.0.1.1 here) "" for all addresses.
std::string listening_address(const std::string& address);

// Called five times a second while a function waits; returning true ends the wait. Data that is
// available at once is transferred without calling it. Empty: the wait is not interrupted.
using InterruptCheck = std::function<bool()>;

// The server's name in messages, and a hint if it does not answer.
struct RemoteName {
  std::string name, hint = {};
  bool listens = false;  // it has been listening, so an address that refuses connections is final
};

// Connects, retrying until the deadline while nobody listens. The descriptor is non-blocking.
// Throws Error(rank) naming remote, address, port and the last reason; Error(stopped) if
// interrupted.
FileDescriptor connect_to(const std::string& address, int port, Clock::time_point deadline,
                          const RemoteName& remote, const InterruptCheck& interrupted = {});

enum class Transfer { done, closed, timeout, interrupted };
// Sends or receives exactly `bytes` on a non-blocking socket before the deadline.
Transfer send_all(int fd, const void* data, size_t bytes, Clock::time_point deadline,
                  const InterruptCheck& interrupted = {});
Transfer receive_all(int fd, void* data, size_t bytes, Clock::time_point deadline,
                     const InterruptCheck& interrupted = {});

}  // namespace dltrain
