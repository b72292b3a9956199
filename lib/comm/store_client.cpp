#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "comm/store.h"
#include "comm/store_protocol.h"

namespace dltrain {

using std::chrono::milliseconds;

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

// Sends a message and receives the answer, both with their length in front.
Transfer StoreClient::round_trip(const std::string& body, std::string& answer,
                                 Clock::time_point deadline) {
  std::string frame;
  append_u32(frame, static_cast<uint32_t>(body.size()));
  frame += body;
  const InterruptCheck& interrupted = options_.interrupted;
  Transfer result = send_all(socket_.get(), frame.data(), frame.size(), deadline, interrupted);
  std::string head(4, '\0');
  if (result == Transfer::done) {
    result = receive_all(socket_.get(), head.data(), head.size(), deadline, interrupted);
  }
  if (result == Transfer::done) {
    std::string_view remaining(head);
    uint32_t length = 0;
    take_u32(remaining, length);
    if (length == 0 || length > store_protocol::kMaxMessage) return Transfer::closed;
    answer.resize(length);
    result = receive_all(socket_.get(), answer.data(), length, deadline, interrupted);
  }
  if (result == Transfer::interrupted) {
    fail(ExitCode::stopped, "interrupted while the store at {} gave no answer", endpoint());
  }
  return result;
}

void StoreClient::handshake(Clock::time_point deadline) {
  std::string handshake(store_protocol::kMagic), answer;
  append_u32(handshake, kStoreVersion);
  const Transfer result = round_trip(handshake + options_.secret, answer, deadline);
  std::string_view remaining(answer);
  uint32_t version = 0;
  const bool is_store = result == Transfer::done && remaining.starts_with(store_protocol::kMagic) &&
                        remaining.size() == store_protocol::kMagic.size() + 5;
  if (!is_store) {
    fail(ExitCode::rank, "the server at {} is not a dltrain store ({}); is the port right?",
         endpoint(),
         result == Transfer::timeout ? "no answer in time" : "it uses another protocol");
  }
  remaining.remove_prefix(store_protocol::kMagic.size());
  take_u32(remaining, version);
  if (remaining[0] == store_protocol::refused_version) {
    fail(ExitCode::rank,
         "the store at {} has protocol version {}, this program has {}: the ranks run different "
         "versions of dltrain",
         endpoint(), version, kStoreVersion);
  }
  if (remaining[0] != store_protocol::ok) {
    fail(ExitCode::rank,
         "the store at {} refused the secret of this {} (DLTRAIN_STORE_SECRET): it belongs to "
         "another run",
         endpoint(), options_.who);
  }
}

// Returns the value of the reply, or nothing if the server's wait has timed out.
std::optional<std::string> StoreClient::request(uint8_t operation, std::string_view key,
                                                std::string_view value, milliseconds wait_limit) {
  const std::string name = options_.prefix + std::string(key);
  check_internal(!key.empty() && name.size() <= kStoreMaxKey && value.size() <= kStoreMaxValue,
                 "store key of {} bytes with a value of {} bytes", name.size(), value.size());
  std::string body(1, static_cast<char>(operation)), answer;
  append_u32(body, static_cast<uint32_t>(name.size()));
  body += name;
  body += value;

  std::lock_guard lock(mutex_);
  // After a failed exchange the stream may be in the middle of a message.
  if (loss_) throw Error(*loss_);
  try {
    const auto deadline = Clock::now() + wait_limit + options_.answer_time;
    const Transfer result = round_trip(body, answer, deadline);
    if (result != Transfer::done) {
      fail(ExitCode::rank, "the store at {} {} (did rank 0 or the launcher end?)", endpoint(),
           result == Transfer::closed ? "closed the connection" : "does not answer");
    }
  } catch (const Error& error) {
    socket_.reset();
    loss_ = error;
    throw;
  }
  if (static_cast<uint8_t>(answer[0]) == store_protocol::timeout) return std::nullopt;
  return answer.substr(1);
}

void StoreClient::set(std::string_view key, std::string_view value) {
  request(store_protocol::set, key, value);
}

std::optional<std::string> StoreClient::find(std::string_view key, milliseconds timeout) {
  timeout = std::clamp(timeout, milliseconds(0), milliseconds(86'400'000));
  std::string value;
  append_u32(value, static_cast<uint32_t>(timeout.count()));
  return request(store_protocol::get, key, value, timeout);
}

std::string StoreClient::get(std::string_view key, milliseconds timeout) {
  if (auto value = find(key, timeout)) return std::move(*value);
  fail(ExitCode::rank, "no rank set '{}' in the store at {} within {} ms", key, endpoint(),
       timeout.count());
}

int64_t StoreClient::add(std::string_view key, int64_t delta) {
  const std::string text = request(store_protocol::add, key, std::to_string(delta)).value_or("");
  int64_t sum = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, sum);
  if (parsed.ec != std::errc() || parsed.ptr != end) {
    fail(ExitCode::rank, "the store at {} holds no number under '{}'", endpoint(), key);
  }
  return sum;
}

std::string StoreClient::put_new(std::string_view key, std::string_view value) {
  return request(store_protocol::put_new, key, value).value_or("");
}

void StoreClient::set_will(std::string_view key, std::string_view value) {
  request(store_protocol::will, key, value);
}

std::string StoreClient::local_address() const {
  return dltrain::local_address(socket_.get());
}

std::string StoreClient::server_address() const {
  return dltrain::peer_address(socket_.get());
}

}  // namespace dltrain
