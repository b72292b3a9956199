// The server of comm/store.h: one thread that serves all connections with epoll, so that the time
// for a request does not grow with their number. A get of a missing key waits until the key is set
// or its time is over; later requests of its connection are answered before it.
#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/signals.h"
#include "comm/store.h"
#include "comm/store_protocol.h"

namespace dltrain {

using namespace store_protocol;

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kHandshakeTimeout{10'000};  // for a client to send its handshake
constexpr int kMaxEvents = 256;                    // that one call of epoll_wait returns

struct Connection {
  FileDescriptor socket;
  std::string in;
  std::string out;
  bool authenticated = false;
  bool closing = false;  // closed once `out` is sent
  bool dead = false;
  bool blocked = false;        // its socket is full; no requests are read until it is not
  std::string will_key, will;  // set when the connection ends; empty: none
  Clock::time_point deadline;  // of the handshake
};

// A get that waits for its key.
struct WaitingGet {
  int connection;  // its descriptor
  uint32_t id;
  Clock::time_point deadline;
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

}  // namespace

class StoreServer::Service {
 public:
  Service(const std::string& address, int port, std::string secret,
          std::function<void(const std::string&)> on_refused)
      : secret_(std::move(secret)),
        on_refused_(std::move(on_refused)),
        listener_(listen_on(address, port)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    check_internal(wake_ && epoll_, "a store's descriptors: {}", std::strerror(errno));
    control(EPOLL_CTL_ADD, wake_.get(), EPOLLIN);
    control(EPOLL_CTL_ADD, listener_.get(), EPOLLIN);
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
  Load load() {
    const std::lock_guard lock(mutex_);
    return load_;
  }
  void wait_for_disconnects(milliseconds limit) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, limit, [&] { return load_.clients == 0; });
  }

 private:
  void run();
  void control(int operation, int fd, uint32_t events);
  void accept_all();
  void read_from(Connection& c);
  void write_to(Connection& c);
  void serve(Connection& c);
  void handshake(Connection& c, std::string_view body);
  void request(Connection& c, std::string_view body);
  void reply(Connection& to, uint32_t id, Status status, std::string_view value = {});
  void get(Connection& c, uint32_t id, const std::string& key, std::string_view value);
  std::string list(const std::string& prefix) const;
  void report_refused(const Connection& c);
  void end(Connection& c);
  void remove_dead();
  void store(const std::string& key, std::string_view value);
  void expire();

  std::string secret_;
  std::function<void(const std::string&)> on_refused_;  // emptied by its call
  FileDescriptor listener_, wake_, epoll_;
  std::map<int, Connection> connections_;           // by descriptor
  std::vector<int> dead_;                           // descriptors of connections that have ended
  std::multimap<std::string, WaitingGet> waiting_;  // by key
  Clock::time_point next_deadline_ = Clock::time_point::max();
  std::map<std::string, std::string> values_;

  std::mutex mutex_;  // of load_, which counts the clients with an accepted handshake
  std::condition_variable changed_;
  Load load_;
  std::thread thread_;
};

void StoreServer::Service::control(int operation, int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  epoll_ctl(epoll_.get(), operation, fd, &event);
}

void StoreServer::Service::run() {
  std::vector<epoll_event> events(kMaxEvents);
  for (;;) {
    int wait = -1;
    if (next_deadline_ != Clock::time_point::max()) {
      const auto left = std::chrono::ceil<milliseconds>(next_deadline_ - Clock::now());
      wait = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60'000));
    }
    const int ready = epoll_wait(epoll_.get(), events.data(), kMaxEvents, wait);
    if (ready < 0 && errno != EINTR) return;
    bool arrived = false;
    for (int i = 0; i < ready; ++i) {
      const int fd = events[static_cast<size_t>(i)].data.fd;
      if (fd == wake_.get()) return;
      arrived = arrived || fd == listener_.get();
      const auto found = connections_.find(fd);
      if (found == connections_.end()) continue;
      found->second.blocked ? write_to(found->second) : read_from(found->second);
    }
    if (Clock::now() >= next_deadline_) expire();
    remove_dead();
    if (arrived) accept_all();
  }
}

void StoreServer::Service::accept_all() {
  for (;;) {
    FileDescriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      // Out of descriptors: the connection stays in the queue; avoid a busy loop.
      if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(milliseconds(20));
      return;
    }
    const int fd = socket.get();
    Connection& c = connections_[fd];
    c.socket = std::move(socket);
    c.deadline = Clock::now() + kHandshakeTimeout;
    next_deadline_ = std::min(next_deadline_, c.deadline);
    control(EPOLL_CTL_ADD, fd, EPOLLIN);
  }
}

void StoreServer::Service::end(Connection& c) {
  if (!std::exchange(c.dead, true)) dead_.push_back(c.socket.get());
}

void StoreServer::Service::read_from(Connection& c) {
  char block[16384];
  for (;;) {
    const ssize_t got = recv(c.socket.get(), block, sizeof(block), 0);
    if (got > 0) {
      c.in.append(block, static_cast<size_t>(got));
      serve(c);
      write_to(c);
      if (c.dead || c.closing || c.blocked) return;
      continue;
    }
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) end(c);
    return;
  }
}

void StoreServer::Service::write_to(Connection& c) {
  while (!c.out.empty() && !c.dead) {
    const ssize_t sent = send(c.socket.get(), c.out.data(), c.out.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      c.out.erase(0, static_cast<size_t>(sent));
    } else {
      if (errno != EAGAIN && errno != EINTR) end(c);
      break;
    }
  }
  if (c.closing && c.out.empty()) end(c);
  if (c.dead || c.blocked == !c.out.empty()) return;
  c.blocked = !c.out.empty();
  control(EPOLL_CTL_MOD, c.socket.get(), c.blocked ? EPOLLOUT : EPOLLIN);
}

// Processes the complete messages in a connection's input.
void StoreServer::Service::serve(Connection& c) {
  std::string_view remaining(c.in), body;
  while (!c.dead && !c.closing) {
    std::string_view peeked(remaining);
    uint32_t length = 0;
    if (take_u32(peeked, length) && length > (c.authenticated ? kMaxMessage : kMaxHandshake)) {
      return end(c);
    }
    if (!take_text(remaining, body)) break;
    c.authenticated ? request(c, body) : handshake(c, body);
  }
  c.in.erase(0, c.in.size() - remaining.size());
  const std::lock_guard lock(mutex_);
  ++load_.messages;
}

void StoreServer::Service::handshake(Connection& c, std::string_view body) {
  uint32_t version = 0;
  const bool known = body.starts_with(kMagic);
  if (known) body.remove_prefix(kMagic.size());
  if (!known || !take_u32(body, version)) return end(c);
  Status status = ok;
  if (version != kStoreVersion) {
    status = refused_version;
  } else if (!equal_secret(body, secret_)) {
    status = refused_secret;
    report_refused(c);
  }
  std::string answer(kMagic);
  append_u32(answer, kStoreVersion);
  answer.push_back(static_cast<char>(status));
  append_text(c.out, answer);
  c.authenticated = status == ok;
  c.closing = !c.authenticated;
  const std::lock_guard lock(mutex_);
  load_.clients += c.authenticated ? 1 : 0;
}

void StoreServer::Service::report_refused(const Connection& c) {
  if (!on_refused_) return;
  try {
    std::exchange(on_refused_, nullptr)(peer_address(c.socket.get()));
  } catch (const Error&) {  // the connection has ended already, and its address is unknown
  }
}

void StoreServer::Service::reply(Connection& to, uint32_t id, Status status,
                                 std::string_view value) {
  append_u32(to.out, static_cast<uint32_t>(4 + 1 + value.size()));
  append_u32(to.out, id);
  to.out.push_back(static_cast<char>(status));
  to.out += value;
}

void StoreServer::Service::request(Connection& c, std::string_view body) {
  uint32_t id = 0;
  std::string_view name;
  const bool begins = take_u32(body, id) && !body.empty();
  const auto operation = static_cast<StoreOperation>(begins ? body[0] : 0);
  body.remove_prefix(begins ? 1 : 0);
  if (!begins || !take_text(body, name) || name.empty() || name.size() > kStoreMaxKey) {
    return end(c);
  }
  const std::string key(name);
  switch (operation) {
    case StoreOperation::set:
      store(key, body);
      return reply(c, id, ok);
    case StoreOperation::get:
      return get(c, id, key, body);
    case StoreOperation::put_new:
      if (!values_.contains(key)) store(key, body);
      return reply(c, id, ok, values_[key]);
    case StoreOperation::will:
      c.will_key = key;
      c.will = body;
      return reply(c, id, ok);
    case StoreOperation::list:
      return reply(c, id, ok, list(key));
  }
  end(c);
}

// Removes the connections that have ended, after executing their last wills, which may wake others.
void StoreServer::Service::remove_dead() {
  if (dead_.empty()) return;
  for (size_t i = 0; i < dead_.size(); ++i) {
    const int fd = dead_[i];
    const auto found = connections_.find(fd);
    const Connection c = std::move(found->second);
    connections_.erase(found);
    std::erase_if(waiting_, [&](const auto& get) { return get.second.connection == fd; });
    if (!c.will.empty() && !values_.contains(c.will_key)) store(c.will_key, c.will);
    if (!c.authenticated) continue;
    const std::lock_guard lock(mutex_);
    --load_.clients;
  }
  dead_.clear();
  changed_.notify_all();
}

void StoreServer::Service::get(Connection& c, uint32_t id, const std::string& key,
                               std::string_view value) {
  uint32_t wait_limit = 0;
  if (!value.empty() && !take_u32(value, wait_limit)) return end(c);
  if (const auto found = values_.find(key); found != values_.end()) {
    reply(c, id, ok, found->second);
  } else if (wait_limit == 0) {
    reply(c, id, timeout);
  } else {
    const auto deadline = Clock::now() + milliseconds(wait_limit);
    waiting_.emplace(key, WaitingGet{c.socket.get(), id, deadline});
    next_deadline_ = std::min(next_deadline_, deadline);
  }
}

std::string StoreServer::Service::list(const std::string& prefix) const {
  std::string out;
  for (auto at = values_.lower_bound(prefix); at != values_.end(); ++at) {
    if (!at->first.starts_with(prefix)) break;
    append_text(out, at->second);
  }
  return out;
}

// Sets the value and answers the gets that wait for it.
void StoreServer::Service::store(const std::string& key, std::string_view value) {
  values_[key] = value;
  const auto [first, last] = waiting_.equal_range(key);
  for (auto get = first; get != last; ++get) {
    Connection& c = connections_.at(get->second.connection);
    reply(c, get->second.id, ok, value);
    write_to(c);
  }
  waiting_.erase(first, last);
}

// Ends the gets and the handshakes whose time is over, and finds the next deadline.
void StoreServer::Service::expire() {
  const auto now = Clock::now();
  next_deadline_ = Clock::time_point::max();
  const auto is_over = [&](Clock::time_point deadline) {
    if (now < deadline) next_deadline_ = std::min(next_deadline_, deadline);
    return now >= deadline;
  };
  for (auto get = waiting_.begin(); get != waiting_.end();) {
    if (!is_over(get->second.deadline)) {
      ++get;
      continue;
    }
    Connection& c = connections_.at(get->second.connection);
    reply(c, get->second.id, timeout);
    write_to(c);
    get = waiting_.erase(get);
  }
  for (auto& [fd, c] : connections_) {
    if (!c.authenticated && is_over(c.deadline)) end(c);
  }
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
StoreServer::Load StoreServer::load() const {
  return service_->load();
}

}  // namespace dltrain
