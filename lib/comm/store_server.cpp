// The server of comm/store.h: one thread that polls all connections and answers the requests of
// each connection in order. A get of a missing key is parked until the key is set or its time is
// over.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <condition_variable>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/signals.h"
#include "comm/store.h"
#include "comm/store_protocol.h"

namespace dltrain {
namespace {

using std::chrono::milliseconds;

constexpr size_t kMaxConnections = 8192;
constexpr milliseconds kHandshakeTimeout{10'000};  // for a client to send its handshake

struct Connection {
  FileDescriptor socket;
  std::string in;
  std::string out;
  bool authenticated = false;
  bool closing = false;  // closed once `out` is sent
  bool dead = false;
  bool parked = false;
  std::string wanted;          // the key of a parked get
  std::string will_key, will;  // set when the connection ends; empty: none
  Clock::time_point deadline;  // of the handshake, then of the parked get
};

// Compares in a time that does not depend on the number of equal leading bytes.
bool equal_secret(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i]) ^
                  static_cast<unsigned char>(b.empty() ? '\0' : b[i % b.size()]);
  }
  return difference == 0;
}

void reply(Connection& to, store_protocol::Status status, std::string_view value = {}) {
  append_u32(to.out, static_cast<uint32_t>(1 + value.size()));
  to.out.push_back(static_cast<char>(status));
  to.out += value;
}

}  // namespace

class StoreServer::Service {
 public:
  Service(const std::string& address, int port, std::string secret,
          std::function<void(const std::string&)> on_refused)
      : secret_(std::move(secret)),
        on_refused_(std::move(on_refused)),
        listener_(listen_on(address, port)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    check_internal(static_cast<bool>(wake_), "eventfd: {}", std::strerror(errno));
    BlockSignals block;
    thread_ = std::thread([this] { run(); });
  }

  ~Service() {
    const uint64_t one = 1;
    // The eventfd is never read and cannot overflow, so this write always succeeds.
    [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
    thread_.join();
  }

  int port() const { return bound_port(listener_.get()); }
  void wait_for_disconnects(milliseconds limit);

 private:
  void run();
  int poll_timeout() const;
  void accept_all();
  void read_from(Connection& c);
  void write_to(Connection& c);
  void serve(Connection& c);
  void handshake(Connection& c, std::string_view body);
  void request(Connection& c, std::string_view body);
  void get(Connection& c, std::string key, std::string_view value);
  void add(Connection& c, const std::string& key, std::string_view value);
  void report_refused(const Connection& c);
  void remove_dead();
  void count_clients();
  void store(const std::string& key, std::string_view value);
  void expire(Connection& c);

  std::string secret_;
  std::function<void(const std::string&)> on_refused_;  // emptied by its call
  FileDescriptor listener_;
  FileDescriptor wake_;
  std::list<Connection> connections_;
  std::map<std::string, std::string> values_;
  size_t held_bytes_ = 0;

  std::mutex mutex_;  // of clients_
  std::condition_variable changed_;
  size_t clients_ = 0;  // with an accepted handshake
  std::thread thread_;
};

void StoreServer::Service::run() {
  std::vector<pollfd> entries;
  for (;;) {
    entries.assign({{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}});
    if (connections_.size() >= kMaxConnections) entries[1].events = 0;
    for (const Connection& c : connections_) {
      const short events =
          static_cast<short>((c.closing ? 0 : POLLIN) | (c.out.empty() ? 0 : POLLOUT));
      entries.push_back({c.socket.get(), events, 0});
    }
    if (poll(entries.data(), entries.size(), poll_timeout()) < 0 && errno != EINTR) return;
    if (entries[0].revents) return;
    size_t i = 2;
    for (Connection& c : connections_) {
      const short ready = entries[i++].revents;
      if (ready & (POLLIN | POLLHUP | POLLERR)) read_from(c);
      expire(c);
    }
    // A set of one connection may answer a parked get of another one.
    for (Connection& c : connections_) write_to(c);
    remove_dead();
    count_clients();
    if (entries[1].revents) accept_all();
  }
}

int StoreServer::Service::poll_timeout() const {
  auto next = Clock::time_point::max();
  for (const Connection& c : connections_) {
    if (c.parked || !c.authenticated) next = std::min(next, c.deadline);
  }
  if (next == Clock::time_point::max()) return -1;
  const auto left = std::chrono::ceil<milliseconds>(next - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
}

void StoreServer::Service::accept_all() {
  while (connections_.size() < kMaxConnections) {
    FileDescriptor fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) {
      // Out of descriptors: the connection stays in the queue; avoid a busy loop.
      if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(milliseconds(20));
      return;
    }
    Connection& c = connections_.emplace_back();
    c.socket = std::move(fd);
    c.deadline = Clock::now() + kHandshakeTimeout;
  }
}

void StoreServer::Service::read_from(Connection& c) {
  char block[16384];
  for (;;) {
    const ssize_t got = recv(c.socket.get(), block, sizeof(block), 0);
    if (got > 0) {
      c.in.append(block, static_cast<size_t>(got));
      serve(c);
      // A valid client has one request in flight.
      if (c.in.size() > 4 + store_protocol::kMaxMessage) c.dead = true;
      if (c.dead || c.closing) return;
      continue;
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    c.dead = true;
    return;
  }
}

void StoreServer::Service::write_to(Connection& c) {
  while (!c.out.empty() && !c.dead) {
    const ssize_t sent = send(c.socket.get(), c.out.data(), c.out.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      c.out.erase(0, static_cast<size_t>(sent));
    } else {
      if (errno != EAGAIN && errno != EINTR) c.dead = true;
      break;
    }
  }
  if (c.closing && c.out.empty()) c.dead = true;
}

// Processes the complete messages in a connection's input.
void StoreServer::Service::serve(Connection& c) {
  while (!c.parked && !c.dead && !c.closing) {
    std::string_view remaining(c.in);
    uint32_t length = 0;
    if (!take_u32(remaining, length)) return;
    if (length > (c.authenticated ? store_protocol::kMaxMessage : store_protocol::kMaxHandshake)) {
      c.dead = true;
      return;
    }
    if (remaining.size() < length) return;
    const std::string body(remaining.substr(0, length));
    c.in.erase(0, 4 + length);
    c.authenticated ? request(c, body) : handshake(c, body);
  }
}

void StoreServer::Service::handshake(Connection& c, std::string_view body) {
  uint32_t version = 0;
  const bool known = body.starts_with(store_protocol::kMagic);
  if (known) body.remove_prefix(store_protocol::kMagic.size());
  if (!known || !take_u32(body, version)) {
    c.dead = true;
    return;
  }
  auto status = store_protocol::ok;
  if (version != kStoreVersion) {
    status = store_protocol::refused_version;
  } else if (!equal_secret(body, secret_)) {
    status = store_protocol::refused_secret;
    report_refused(c);
  }
  std::string answer(store_protocol::kMagic);
  append_u32(answer, kStoreVersion);
  answer.push_back(static_cast<char>(status));
  append_u32(c.out, static_cast<uint32_t>(answer.size()));
  c.out += answer;
  c.authenticated = status == store_protocol::ok;
  c.closing = !c.authenticated;
}

void StoreServer::Service::report_refused(const Connection& c) {
  if (!on_refused_) return;
  try {
    std::exchange(on_refused_, nullptr)(peer_address(c.socket.get()));
  } catch (const Error&) {  // the connection has ended already, and its address is unknown
  }
}

void StoreServer::Service::request(Connection& c, std::string_view body) {
  uint32_t length = 0;
  const char operation = body.empty() ? '\0' : body[0];
  body.remove_prefix(body.empty() ? 0 : 1);
  if (!take_u32(body, length) || length > body.size() || length == 0 || length > kStoreMaxKey) {
    c.dead = true;
    return;
  }
  std::string key(body.substr(0, length));
  const std::string_view value = body.substr(length);
  switch (operation) {
    case store_protocol::set:
      store(key, value);
      return reply(c, store_protocol::ok);
    case store_protocol::get:
      return get(c, std::move(key), value);
    case store_protocol::add:
      return add(c, key, value);
    case store_protocol::put_new:
      if (!values_.contains(key)) store(key, value);
      return reply(c, store_protocol::ok, values_[key]);
    case store_protocol::will:
      c.will_key = std::move(key);
      c.will = value;
      return reply(c, store_protocol::ok);
    default:
      c.dead = true;
  }
}

// Removes the connections that have ended, after executing their last wills.
void StoreServer::Service::remove_dead() {
  for (const Connection& c : connections_) {
    if (c.dead && !c.will.empty() && !values_.contains(c.will_key)) store(c.will_key, c.will);
  }
  connections_.remove_if([](const Connection& c) { return c.dead; });
  for (Connection& c : connections_) write_to(c);
}

void StoreServer::Service::count_clients() {
  const auto count =
      static_cast<size_t>(std::count_if(connections_.begin(), connections_.end(),
                                        [](const Connection& c) { return c.authenticated; }));
  {
    const std::lock_guard lock(mutex_);
    if (clients_ == count) return;
    clients_ = count;
  }
  changed_.notify_all();
}

void StoreServer::Service::wait_for_disconnects(milliseconds limit) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, limit, [&] { return clients_ == 0; });
}

void StoreServer::Service::get(Connection& c, std::string key, std::string_view value) {
  uint32_t wait_limit = 0;
  if (!take_u32(value, wait_limit)) {
    c.dead = true;
    return;
  }
  if (const auto found = values_.find(key); found != values_.end()) {
    reply(c, store_protocol::ok, found->second);
  } else if (wait_limit == 0) {
    reply(c, store_protocol::timeout);
  } else {
    c.parked = true;
    c.wanted = std::move(key);
    c.deadline = Clock::now() + milliseconds(wait_limit);
  }
}

void StoreServer::Service::add(Connection& c, const std::string& key, std::string_view value) {
  const auto number = [](std::string_view text, int64_t& to) {
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), to);
    return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
  };
  int64_t delta = 0, old = 0, sum = 0;
  const auto found = values_.find(key);
  const bool valid = number(value, delta) &&
                     (found == values_.end() || number(found->second, old)) &&
                     !__builtin_add_overflow(old, delta, &sum);
  if (valid) store(key, std::to_string(sum));
  reply(c, store_protocol::ok, valid ? values_[key] : std::string_view());
}

// Values beyond kStoreMaxTotal are dropped: only a faulty client stores as much.
void StoreServer::Service::store(const std::string& key, std::string_view value) {
  const auto found = values_.find(key);
  const size_t old = found == values_.end() ? 0 : key.size() + found->second.size();
  if (held_bytes_ - old + key.size() + value.size() > kStoreMaxTotal) return;
  held_bytes_ += key.size() + value.size() - old;
  values_[key] = value;
  for (Connection& c : connections_) {
    if (c.parked && c.wanted == key) {
      c.parked = false;
      reply(c, store_protocol::ok, value);
    }
  }
}

void StoreServer::Service::expire(Connection& c) {
  if ((c.authenticated && !c.parked) || c.closing || Clock::now() < c.deadline) return;
  if (!c.authenticated) {
    c.dead = true;
    return;
  }
  c.parked = false;
  reply(c, store_protocol::timeout);
}

StoreServer::StoreServer(const std::string& address, int port, std::string secret,
                         std::function<void(const std::string&)> on_refused)
    : service_(std::make_unique<Service>(address, port, std::move(secret), std::move(on_refused))) {
}
StoreServer::~StoreServer() = default;
int StoreServer::port() const {
  return service_->port();
}
void StoreServer::wait_for_disconnects(milliseconds limit) const {
  service_->wait_for_disconnects(limit);
}

}  // namespace dltrain
