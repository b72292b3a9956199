// Small helpers over TCP sockets: an owned descriptor, listening, connecting with a deadline, and
// frames (a 32-bit little-endian length followed by that many bytes).
//
// Threads: plain functions without shared state. Nothing here raises SIGPIPE.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/file_descriptor.h"

namespace dltrain {

using Clock = std::chrono::steady_clock;

// Listens on `address`:`port` (numeric address or host name; empty: all addresses of this host, of
// IPv4 and IPv6; port 0: any free one). The descriptor is non-blocking and not inherited by child
// processes. Throws Error(rank), naming the port in use.
FileDescriptor listen_on(const std::string& address, int port);
// Lets this process open so many descriptors more, beside those of a usual program and what was
// asked for before, as far as the system's limit allows.
void allow_descriptors(size_t count);
// The port that a socket is bound to.
int bound_port(int fd);
// "10.0.0.1:29500", or "[fd00::1]:29500", for messages.
std::string endpoint_text(const std::string& address, int port);
// The numeric address of this end of a connection: what peers on the same network can reach.
std::string local_address(int fd);
// The numeric address of the other end.
std::string peer_address(int fd);

// Why an address or host name means nothing (yet) to this host; empty: it does.
std::string resolve_problem(const std::string& address);

// Looked at while something is waited for that is not there, five times a second; true gives the
// waiting up. What is there at once is taken without asking. Empty: never.
using Interrupted = std::function<bool()>;

// Whom messages say that a connection is to, and what they ask when nobody answers.
struct Callee {
  std::string name, hint = {};
};

// Connects, retrying while nobody listens yet, until the deadline. The descriptor is non-blocking.
// Throws Error(rank) naming callee, address, port and the last reason; Error(stopped) when
// interrupted.
FileDescriptor connect_to(const std::string& address, int port, Clock::time_point deadline,
                          const Callee& callee, const Interrupted& interrupted = {});

enum class Transfer { done, closed, timeout, interrupted };
// Sends or receives exactly `bytes` on a non-blocking socket before the deadline.
Transfer send_all(int fd, const void* data, size_t bytes, Clock::time_point deadline,
                  const Interrupted& interrupted = {});
Transfer receive_all(int fd, void* data, size_t bytes, Clock::time_point deadline,
                     const Interrupted& interrupted = {});

// Little-endian numbers in frames.
void append_u32(std::string& to, uint32_t value);
// Takes four bytes off the front of `from`; false when there are fewer.
bool take_u32(std::string_view& from, uint32_t& value);

}  // namespace dltrain
