// Every message is a frame: u32 length (little-endian), then that many bytes. A text is a u32
// length and its bytes.
//
//   handshake   client: magic[8], secret
//               server: magic[8], u8: 1 if the secret is right, otherwise 0
//   requests    client: for each u8 operation, text key, text value
//               server: for each u8: 1 if there is a value, otherwise 0; text value
//
// The value of `list` is the values of all keys that begin with the key, as texts.
#include "comm/store.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include <poll.h>
#include <sys/socket.h>

#include "base/signals.h"

namespace dltrain {
namespace {

using std::chrono::milliseconds;

constexpr std::string_view kMagic = "dltstor5";  // with the version of the protocol
constexpr size_t kMaxHandshake = kMagic.size() + kStoreMaxSecret;
constexpr size_t kMaxMessage = 4 * kStoreMaxValue;
// The lists of a server with many ranks are longer than a request.
constexpr size_t kMaxReply = size_t{1} << 30;

constexpr milliseconds kHandshakeTimeout{10'000};  // for a client to send its handshake
constexpr milliseconds kAcceptPause{20};           // after an error, such as too many descriptors
// Intervals at which a key that does not exist is asked for again.
constexpr milliseconds kFirstPause{20}, kLongestPause{250};

// Appends a little-endian number.
void append_u32(std::string& to, uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) to.push_back(static_cast<char>(value >> shift));
}

// Removes a number from the front of `from`. Returns false if there are fewer than four bytes.
bool take_u32(std::string_view& from, uint32_t& value) {
  if (from.size() < 4) return false;
  value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(from[i]);
  from.remove_prefix(4);
  return true;
}

void append_text(std::string& to, std::string_view text) {
  append_u32(to, static_cast<uint32_t>(text.size()));
  to += text;
}

// Removes a text from the front of `from`. Returns false if it is incomplete.
bool take_text(std::string_view& from, std::string_view& text) {
  uint32_t length = 0;
  if (!take_u32(from, length) || from.size() < length) return false;
  text = from.substr(0, length);
  from.remove_prefix(length);
  return true;
}

// Removes a byte, which says what the text after it is, and the text.
bool take_tagged(std::string_view& from, char& tag, std::string_view& text) {
  if (from.empty()) return false;
  tag = from[0];
  from.remove_prefix(1);
  return take_text(from, text);
}

Transfer send_message(int fd, std::string_view body, Clock::time_point deadline,
                      const InterruptCheck& interrupted = {}) {
  std::string frame;
  append_text(frame, body);
  return send_all(fd, frame.data(), frame.size(), deadline, interrupted);
}

// A message of more than `limit` bytes counts as the end of the connection.
Transfer receive_message(int fd, std::string& body, size_t limit, Clock::time_point deadline,
                         const InterruptCheck& interrupted = {}) {
  char header[4];
  const Transfer result = receive_all(fd, header, sizeof header, deadline, interrupted);
  if (result != Transfer::done) return result;
  std::string_view rest(header, sizeof header);
  uint32_t length = 0;
  take_u32(rest, length);
  if (length > limit) return Transfer::closed;
  body.resize(length);
  return receive_all(fd, body.data(), length, deadline, interrupted);
}

// Compares in a time that does not depend on the number of equal leading bytes.
bool equal_secret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  int difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == 0;
}

}  // namespace

StoreServer::StoreServer(const std::string& address, int port, std::string secret,
                         OnRefused on_refused, milliseconds linger, const std::string& setting)
    : secret_(std::move(secret)),
      linger_(linger),
      listener_(listen_on(address, port, setting)),
      on_refused_(std::move(on_refused)) {
  BlockSignals block;
  thread_ = std::thread([this] { accept_clients(); });
}

StoreServer::~StoreServer() {
  wait_for_disconnects(linger_);
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    shutdown(listener_.get(), SHUT_RDWR);
    for (const Client& client : clients_) {
      if (client.socket) shutdown(client.socket.get(), SHUT_RDWR);
    }
  }
  thread_.join();
  for (Client& client : clients_) client.thread.join();
}

StoreServer::Load StoreServer::load() {
  const std::lock_guard lock(mutex_);
  return load_;
}

void StoreServer::wait_for_disconnects(milliseconds limit) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, limit, [&] { return load_.clients == 0; });
}

void StoreServer::accept_clients() {
  for (;;) {
    pollfd entry{listener_.get(), POLLIN, 0};
    poll(&entry, 1, -1);
    FileDescriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    std::unique_lock lock(mutex_);
    if (stopping_) return;
    clients_.remove_if([](Client& client) {
      const bool ended = !client.socket;
      if (ended) client.thread.join();
      return ended;
    });
    if (socket) {
      Client& client = clients_.emplace_back();
      client.socket = std::move(socket);
      try {
        client.thread = std::thread([this, &client] { serve(client); });
      } catch (const std::system_error&) {  // no more threads are allowed; closes the connection
        clients_.pop_back();
      }
    } else {
      lock.unlock();
      std::this_thread::sleep_for(kAcceptPause);
    }
  }
}

void StoreServer::serve(Client& client) {
  const int fd = client.socket.get();
  const bool accepted = handshake(client);
  std::string message;
  while (accepted &&
         receive_message(fd, message, kMaxMessage, Clock::time_point::max()) == Transfer::done) {
    std::string reply;
    if (!perform(client, message, reply) ||
        send_message(fd, reply, Clock::time_point::max()) != Transfer::done) {
      break;
    }
  }
  const std::lock_guard lock(mutex_);
  if (!client.will.empty()) values_.emplace(client.will_key, client.will);
  if (accepted) --load_.clients;
  client.socket.reset();
  changed_.notify_all();
}

// Returns true if the client has the secret.
bool StoreServer::handshake(const Client& client) {
  const int fd = client.socket.get();
  const auto deadline = Clock::now() + kHandshakeTimeout;
  std::string message;
  if (receive_message(fd, message, kMaxHandshake, deadline) != Transfer::done ||
      !message.starts_with(kMagic)) {
    return false;
  }
  const bool accepted = equal_secret(message.substr(kMagic.size()), secret_);
  OnRefused on_refused;
  {
    const std::lock_guard lock(mutex_);
    if (accepted) ++load_.clients;
    if (!accepted) on_refused.swap(on_refused_);
  }
  try {
    if (on_refused) on_refused(peer_address(fd));
  } catch (const Error&) {  // the connection has ended already, and its address is unknown
  }
  send_message(fd, std::string(kMagic) + static_cast<char>(accepted), deadline);
  return accepted;
}

// Returns false if the message is malformed.
bool StoreServer::perform(Client& client, std::string_view message, std::string& reply) {
  const std::lock_guard lock(mutex_);
  ++load_.messages;
  while (!message.empty()) {
    char operation = 0;
    std::string_view name, value;
    if (!take_tagged(message, operation, name) || !take_text(message, value) || name.empty() ||
        name.size() > kStoreMaxKey || value.size() > kStoreMaxValue) {
      return false;
    }
    const std::string key(name);
    std::optional<std::string> answer = "";
    switch (static_cast<StoreOperation>(operation)) {
      case StoreOperation::set:
        values_[key] = value;
        break;
      case StoreOperation::get: {
        const auto found = values_.find(key);
        answer = found != values_.end() ? std::optional(found->second) : std::nullopt;
        break;
      }
      case StoreOperation::put_new:
        answer = values_.emplace(key, value).first->second;
        break;
      case StoreOperation::will:
        client.will_key = key;
        client.will = value;
        break;
      case StoreOperation::list:
        for (auto at = values_.lower_bound(key); at != values_.end() && at->first.starts_with(key);
             ++at) {
          append_text(*answer, at->second);
        }
        break;
      default:
        return false;
    }
    reply.push_back(answer ? 1 : 0);
    append_text(reply, answer.value_or(""));
  }
  return true;
}

StoreClient::StoreClient(StoreOptions options) : options_(std::move(options)) {
  if (options_.secret.size() > kStoreMaxSecret) {
    fail(ExitCode::usage, "the store's secret has {} bytes; at most {} are possible",
         options_.secret.size(), kStoreMaxSecret);
  }
  const auto deadline = Clock::now() + options_.connect_timeout;
  const RemoteName store{"the store", "is rank 0 or the launcher of node 0 running there?"};
  socket_ = connect_to(options_.address, options_.port, deadline, store, options_.interrupted);
  handshake(std::max(deadline, Clock::now() + milliseconds(1000)));
}

void StoreClient::handshake(Clock::time_point deadline) {
  std::string answer;
  Transfer result = send_message(socket_.get(), std::string(kMagic) + options_.secret, deadline,
                                 options_.interrupted);
  if (result == Transfer::done) {
    result = receive_message(socket_.get(), answer, kMaxHandshake, deadline, options_.interrupted);
  }
  if (result == Transfer::interrupted) {
    fail(ExitCode::stopped, "interrupted while the store at {} gave no answer", endpoint());
  }
  if (result == Transfer::done && answer == std::string(kMagic) + '\1') return;
  if (result == Transfer::done && answer.starts_with(kMagic)) {
    fail(ExitCode::rank,
         "the store at {} refused the secret of this {} (DLTRAIN_STORE_SECRET): it belongs to "
         "another run",
         endpoint(), options_.who);
  }
  fail(
      ExitCode::rank,
      "the server at {} is not a dltrain store of this version of dltrain ({}); is the port right?",
      endpoint(),
      result == Transfer::timeout ? "no answer in time"
                                  : "it uses another protocol, or can serve no more ranks");
}

void StoreClient::check_interrupted() {
  if (options_.interrupted && options_.interrupted()) {
    fail(ExitCode::stopped, "interrupted while waiting for the store at {}", endpoint());
  }
}

StoreClient::Values StoreClient::perform(std::span<const StoreRequest> requests) {
  std::string message;
  for (const StoreRequest& request : requests) {
    const std::string key = options_.prefix + request.key;
    check_internal(!request.key.empty() && key.size() <= kStoreMaxKey &&
                       request.value.size() <= kStoreMaxValue,
                   "store key of {} bytes with a value of {} bytes", key.size(),
                   request.value.size());
    message.push_back(static_cast<char>(request.operation));
    append_text(message, key);
    append_text(message, request.value);
  }
  std::unique_lock lock(mutex_, std::defer_lock);
  // By the system's clock, because the thread sanitizer does not know waits by the steady one.
  while (!lock.try_lock_until(std::chrono::system_clock::now() + kLongestPause)) {
    check_interrupted();
  }
  if (loss_) throw Error(*loss_);
  const auto deadline = Clock::now() + options_.answer_time;
  std::string reply;
  Transfer result = send_message(socket_.get(), message, deadline, options_.interrupted);
  if (result == Transfer::done) {
    result = receive_message(socket_.get(), reply, kMaxReply, deadline, options_.interrupted);
  }
  Values values;
  std::string_view rest(reply), value;
  for (char exists = 0; result == Transfer::done && take_tagged(rest, exists, value);) {
    values.push_back(exists != 0 ? std::optional(std::string(value)) : std::nullopt);
  }
  if (values.size() == requests.size()) return values;
  // The answer to this message could be taken for that of the next one.
  loss_ =
      result == Transfer::interrupted
          ? Error(ExitCode::stopped,
                  fmt::format("interrupted while the store at {} gave no answer", endpoint()))
          : Error(ExitCode::rank,
                  fmt::format(
                      "the store at {} {} (did rank 0 or the launcher end?)", endpoint(),
                      result == Transfer::timeout ? "does not answer" : "closed the connection"));
  throw Error(*loss_);
}

StoreClient::Values StoreClient::wait_for(std::span<const StoreRequest> requests,
                                          milliseconds timeout) {
  const auto deadline = Clock::now() + std::min(timeout, milliseconds(86'400'000));
  for (milliseconds pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    Values values = perform(requests);
    const milliseconds left = time_until(deadline);
    const bool found = std::ranges::any_of(values, [](const auto& v) { return v.has_value(); });
    if (found || left.count() <= 0) return values;
    check_interrupted();
    std::this_thread::sleep_for(std::min(pause, left));
  }
}

std::string StoreClient::perform_one(StoreOperation operation, std::string_view key,
                                     std::string_view value) {
  const StoreRequest request{operation, std::string(key), std::string(value)};
  return perform({&request, 1})[0].value_or("");
}

void StoreClient::set(std::string_view key, std::string_view value) {
  perform_one(StoreOperation::set, key, value);
}

std::optional<std::string> StoreClient::find(std::string_view key, milliseconds timeout) {
  const StoreRequest request{StoreOperation::get, std::string(key)};
  return std::move(wait_for({&request, 1}, timeout)[0]);
}

std::string StoreClient::get(std::string_view key, milliseconds timeout) {
  if (auto value = find(key, timeout)) return std::move(*value);
  fail(ExitCode::rank, "no rank set '{}' in the store at {} within {} ms", key, endpoint(),
       timeout.count());
}

std::vector<std::string> StoreClient::list(std::string_view prefix) {
  return listed(perform_one(StoreOperation::list, prefix));
}

std::vector<std::string> StoreClient::listed(std::string_view value) {
  std::vector<std::string> values;
  for (std::string_view text; take_text(value, text);) values.emplace_back(text);
  return values;
}

std::string StoreClient::put_new(std::string_view key, std::string_view value) {
  return perform_one(StoreOperation::put_new, key, value);
}

void StoreClient::set_will(std::string_view key, std::string_view value) {
  perform_one(StoreOperation::will, key, value);
}

}  // namespace dltrain
