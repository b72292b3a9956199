#include <algorithm>
#include <cerrno>

#include <poll.h>
#include <sys/socket.h>

#include "base/error.h"
#include "comm/store.h"
#include "comm/store_protocol.h"

namespace dltrain {

using std::chrono::milliseconds;
using namespace store_protocol;

namespace {

// The longest time between two calls of `interrupted`.
constexpr milliseconds kInterruptInterval{200};
// The lists of a server with many ranks are longer than a request.
constexpr size_t kMaxReply = size_t{1} << 30;

}  // namespace

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

std::string StoreClient::endpoint() const {
  return endpoint_text(options_.address, options_.port);
}

void StoreClient::handshake(Clock::time_point deadline) {
  std::string hello(kMagic), message;
  append_u32(hello, kStoreVersion);
  append_text(message, hello + options_.secret);
  const InterruptCheck& interrupted = options_.interrupted;
  std::string answer(4 + kMagic.size() + 4 + 1, '\0');
  Transfer result = send_all(socket_.get(), message.data(), message.size(), deadline, interrupted);
  if (result == Transfer::done) {
    result = receive_all(socket_.get(), answer.data(), answer.size(), deadline, interrupted);
  }
  if (result == Transfer::interrupted) {
    fail(ExitCode::stopped, "interrupted while the store at {} gave no answer", endpoint());
  }
  std::string_view remaining(answer);
  uint32_t length = 0, version = 0;
  take_u32(remaining, length);
  if (result != Transfer::done || length != remaining.size() || !remaining.starts_with(kMagic)) {
    fail(ExitCode::rank, "the server at {} is not a dltrain store ({}); is the port right?",
         endpoint(),
         result == Transfer::timeout ? "no answer in time" : "it uses another protocol");
  }
  remaining.remove_prefix(kMagic.size());
  take_u32(remaining, version);
  if (remaining[0] == refused_version) {
    fail(ExitCode::rank,
         "the store at {} has protocol version {}, this program has {}: the ranks run different "
         "versions of dltrain",
         endpoint(), version, kStoreVersion);
  }
  if (remaining[0] != ok) {
    fail(ExitCode::rank,
         "the store at {} refused the secret of this {} (DLTRAIN_STORE_SECRET): it belongs to "
         "another run",
         endpoint(), options_.who);
  }
}

StoreClient::Values StoreClient::call(std::span<const StoreRequest> requests,
                                      milliseconds wait_limit) {
  const auto deadline = Clock::now() + wait_limit + options_.answer_time;
  Values values(requests.size());
  std::string message;
  std::unique_lock lock(mutex_);
  if (loss_) throw Error(*loss_);
  const uint32_t first = next_id_;
  for (const StoreRequest& request : requests) {
    const size_t key = options_.prefix.size() + request.key.size();
    check_internal(
        !request.key.empty() && key <= kStoreMaxKey && request.value.size() <= kStoreMaxValue,
        "store key of {} bytes with a value of {} bytes", key, request.value.size());
    append_u32(message, static_cast<uint32_t>(4 + 1 + 4 + key + request.value.size()));
    append_u32(message, next_id_);
    message.push_back(static_cast<char>(request.operation));
    append_text(message, options_.prefix + request.key);
    message += request.value;
    replies_[next_id_++] = std::nullopt;
  }
  lock.unlock();
  Transfer result = Transfer::done;
  {
    const std::lock_guard writing(writing_);
    result = send_all(socket_.get(), message.data(), message.size(), deadline);
  }
  lock.lock();
  // One of the waiting threads receives the replies of all.
  while (result == Transfer::done && !loss_ && !take_replies(first, values)) {
    const auto slice = std::min(deadline, Clock::now() + kInterruptInterval);
    if (reading_) {
      changed_.wait_until(lock, slice);
    } else {
      reading_ = true;
      lock.unlock();
      const Transfer received = receive_some(slice);
      lock.lock();
      reading_ = false;
      changed_.notify_all();
      if (received == Transfer::closed) result = Transfer::closed;
    }
    if (take_replies(first, values)) break;
    if (Clock::now() >= deadline) result = Transfer::timeout;
    if (options_.interrupted && Clock::now() >= slice && options_.interrupted()) {
      result = Transfer::interrupted;
    }
  }
  for (uint32_t i = 0; i < requests.size(); ++i) replies_.erase(first + i);
  if (loss_) throw Error(*loss_);
  if (result == Transfer::done) return values;
  if (result == Transfer::interrupted) {
    fail(ExitCode::stopped, "interrupted while the store at {} gave no answer", endpoint());
  }
  loss_ =
      Error(ExitCode::rank,
            fmt::format("the store at {} {} (did rank 0 or the launcher end?)", endpoint(),
                        result == Transfer::closed ? "closed the connection" : "does not answer"));
  changed_.notify_all();
  throw Error(*loss_);
}

// Called with the mutex. Returns true if all replies from the id `first` on have come.
bool StoreClient::take_replies(uint32_t first, Values& values) {
  for (uint32_t i = 0; i < values.size(); ++i) {
    if (!replies_[first + i]) return false;
  }
  for (uint32_t i = 0; i < values.size(); ++i) {
    std::string& reply = *replies_[first + i];
    if (reply[0] == ok) values[i] = reply.substr(1);
  }
  return true;
}

// Receives what has come until the deadline. Returns done if that was anything.
Transfer StoreClient::receive_some(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
  pollfd entry{socket_.get(), POLLIN, 0};
  if (poll(&entry, 1, static_cast<int>(std::max<int64_t>(left.count(), 0))) <= 0) {
    return Transfer::timeout;
  }
  char block[16384];
  const ssize_t got = recv(socket_.get(), block, sizeof(block), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Transfer::timeout;
  if (got <= 0) return Transfer::closed;
  input_.append(block, static_cast<size_t>(got));
  std::string_view remaining(input_), reply;
  const std::lock_guard lock(mutex_);
  while (take_text(remaining, reply)) {
    uint32_t id = 0;
    if (!take_u32(reply, id) || reply.empty()) return Transfer::closed;
    // A call that was interrupted does not wait any more.
    if (const auto found = replies_.find(id); found != replies_.end()) found->second = reply;
  }
  input_.erase(0, input_.size() - remaining.size());
  return input_.size() > kMaxReply ? Transfer::closed : Transfer::done;
}

std::optional<std::string> StoreClient::call_one(StoreOperation operation, std::string_view key,
                                                 std::string_view value, milliseconds wait_limit) {
  const StoreRequest request{operation, std::string(key), std::string(value)};
  return std::move(call({&request, 1}, wait_limit)[0]);
}

void StoreClient::set(std::string_view key, std::string_view value) {
  call_one(StoreOperation::set, key, value);
}

std::optional<std::string> StoreClient::find(std::string_view key, milliseconds timeout) {
  timeout = std::clamp(timeout, milliseconds(0), milliseconds(86'400'000));
  std::string value;
  append_u32(value, static_cast<uint32_t>(timeout.count()));
  return call_one(StoreOperation::get, key, value, timeout);
}

std::string StoreClient::get(std::string_view key, milliseconds timeout) {
  if (auto value = find(key, timeout)) return std::move(*value);
  fail(ExitCode::rank, "no rank set '{}' in the store at {} within {} ms", key, endpoint(),
       timeout.count());
}

std::vector<std::string> StoreClient::list(std::string_view prefix) {
  return listed(call_one(StoreOperation::list, prefix).value_or(""));
}

std::vector<std::string> StoreClient::listed(std::string_view value) {
  std::vector<std::string> values;
  for (std::string_view text; take_text(value, text);) values.emplace_back(text);
  return values;
}

std::string StoreClient::put_new(std::string_view key, std::string_view value) {
  return call_one(StoreOperation::put_new, key, value).value_or("");
}

void StoreClient::set_will(std::string_view key, std::string_view value) {
  call_one(StoreOperation::will, key, value);
}

StoreClient::Values StoreClient::perform(std::span<const StoreRequest> requests) {
  return call(requests);
}

std::string StoreClient::local_address() const {
  return dltrain::local_address(socket_.get());
}

std::string StoreClient::server_address() const {
  return dltrain::peer_address(socket_.get());
}

}  // namespace dltrain
