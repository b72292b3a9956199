#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "comm/store.h"
#include "comm/store_protocol.h"

namespace dltrain {

using std::chrono::milliseconds;

struct StoreClient::Reply {
  uint8_t status = 0;
  std::string value;
};

StoreClient::StoreClient(StoreOptions options) : options_(std::move(options)) {
  if (options_.secret.size() > kStoreMaxSecret) {
    fail(ExitCode::usage, "the store's secret has {} bytes, at most {} are possible",
         options_.secret.size(), kStoreMaxSecret);
  }
  const auto deadline = Clock::now() + options_.connect_timeout;
  const Callee store{"the store", "does rank 0, or the launcher of node 0, run there?"};
  socket_ = connect_to(options_.address, options_.port, deadline, store, options_.interrupted);
  greet(std::max(deadline, Clock::now() + milliseconds(1000)));
}

std::string StoreClient::place() const {
  return endpoint_text(options_.address, options_.port);
}

void StoreClient::greet(Clock::time_point deadline) {
  std::string body(store_protocol::kMagic);
  append_u32(body, kStoreVersion);
  body += options_.secret;
  std::string frame;
  append_u32(frame, static_cast<uint32_t>(body.size()));
  frame += body;
  std::string answer(4 + store_protocol::kMagic.size() + 5, '\0');
  Transfer result =
      send_all(socket_.get(), frame.data(), frame.size(), deadline, options_.interrupted);
  if (result == Transfer::done) {
    result =
        receive_all(socket_.get(), answer.data(), answer.size(), deadline, options_.interrupted);
  }
  if (result == Transfer::interrupted) give_up();
  std::string_view rest(answer);
  uint32_t length = 0, version = 0;
  take_u32(rest, length);
  if (result != Transfer::done || !rest.starts_with(store_protocol::kMagic)) {
    fail(ExitCode::rank, "what answers at {} is not a dltrain store ({}); is the port right?",
         place(),
         result == Transfer::timeout  ? "no answer in time"
         : result == Transfer::closed ? "it closed the connection"
                                      : "another protocol");
  }
  rest.remove_prefix(store_protocol::kMagic.size());
  take_u32(rest, version);
  if (rest[0] == store_protocol::refused_version) {
    fail(ExitCode::rank,
         "the store at {} speaks protocol version {}, this program {}: the ranks run different "
         "versions of dltrain",
         place(), version, kStoreVersion);
  }
  if (rest[0] != store_protocol::ok) {
    fail(ExitCode::rank,
         "the store at {} refused this {}'s secret (DLTRAIN_STORE_SECRET): it belongs to "
         "another run",
         place(), options_.who);
  }
}

std::string StoreClient::receive_frame(Clock::time_point deadline) {
  std::string head(4, '\0');
  std::string body;
  Transfer result =
      receive_all(socket_.get(), head.data(), head.size(), deadline, options_.interrupted);
  if (result == Transfer::done) {
    std::string_view rest(head);
    uint32_t length = 0;
    take_u32(rest, length);
    if (length == 0 || length > store_protocol::kMaxMessage) {
      fail(ExitCode::rank, "the store at {} sent a message of {} bytes", place(), length);
    }
    body.resize(length);
    result = receive_all(socket_.get(), body.data(), length, deadline, options_.interrupted);
  }
  if (result == Transfer::done) return body;
  if (result == Transfer::interrupted) give_up();
  fail(ExitCode::rank, "the store at {} {} (did rank 0 or the launcher end?)", place(),
       result == Transfer::closed ? "closed the connection" : "does not answer");
}

StoreClient::Reply StoreClient::call(uint8_t operation, std::string_view key,
                                     std::string_view value, milliseconds patience) {
  const std::string name = options_.prefix + std::string(key);
  check_internal(!key.empty() && name.size() <= kStoreMaxKey && value.size() <= kStoreMaxValue,
                 "store key of {} bytes with a value of {} bytes", name.size(), value.size());
  std::string frame;
  append_u32(frame, static_cast<uint32_t>(1 + 4 + name.size() + value.size()));
  frame.push_back(static_cast<char>(operation));
  append_u32(frame, static_cast<uint32_t>(name.size()));
  frame += name;
  frame += value;

  std::lock_guard lock(mutex_);
  // After a failed exchange the stream may be in the middle of a message.
  if (loss_) throw Error(*loss_);
  try {
    return exchange(frame, Clock::now() + patience + options_.answer_time);
  } catch (const Error& error) {
    socket_.reset();
    loss_ = error;
    throw;
  } catch (...) {
    socket_.reset();
    loss_ = Error(ExitCode::rank,
                  "the connection to the store was given up in the middle of a message");
    throw;
  }
}

StoreClient::Reply StoreClient::exchange(const std::string& frame, Clock::time_point deadline) {
  const Transfer sent =
      send_all(socket_.get(), frame.data(), frame.size(), deadline, options_.interrupted);
  if (sent == Transfer::interrupted) give_up();
  if (sent != Transfer::done) {
    fail(ExitCode::rank, "the store at {} {} (did rank 0 or the launcher end?)", place(),
         sent == Transfer::closed ? "closed the connection" : "does not answer");
  }
  std::string body = receive_frame(deadline);
  const auto status = static_cast<uint8_t>(body[0]);
  body.erase(0, 1);
  return {status, std::move(body)};
}

void StoreClient::give_up() const {
  fail(ExitCode::stopped, "interrupted while the store at {} gave no answer", place());
}

void StoreClient::set(std::string_view key, std::string_view value) {
  if (call(store_protocol::set, key, value, {}).status != store_protocol::ok) {
    fail(ExitCode::rank, "the store at {} is full", place());
  }
}

std::optional<std::string> StoreClient::find(std::string_view key, milliseconds timeout) {
  timeout = std::clamp(timeout, milliseconds(0), milliseconds(86'400'000));
  std::string value;
  append_u32(value, static_cast<uint32_t>(timeout.count()));
  Reply reply = call(store_protocol::get, key, value, timeout);
  if (reply.status == store_protocol::timeout) return std::nullopt;
  return std::move(reply.value);
}

std::string StoreClient::get(std::string_view key) {
  return get(key, options_.timeout);
}

std::string StoreClient::get(std::string_view key, milliseconds timeout) {
  if (auto value = find(key, timeout)) return std::move(*value);
  fail(ExitCode::rank, "nobody set '{}' in the store at {} within {} ms: a rank never came", key,
       place(), timeout.count());
}

std::optional<std::string> StoreClient::try_get(std::string_view key) {
  return find(key, milliseconds(0));
}

void StoreClient::wait(const std::vector<std::string>& keys, milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  for (const std::string& key : keys) {
    get(key, std::chrono::ceil<milliseconds>(deadline - Clock::now()));
  }
}

int64_t StoreClient::add(std::string_view key, int64_t delta) {
  const Reply reply = call(store_protocol::add, key, std::to_string(delta), {});
  int64_t sum = 0;
  const char* end = reply.value.data() + reply.value.size();
  const auto parsed = std::from_chars(reply.value.data(), end, sum);
  if (reply.status != store_protocol::ok || parsed.ec != std::errc() || parsed.ptr != end) {
    fail(ExitCode::rank, "the store at {} holds no number under '{}'", place(), key);
  }
  return sum;
}

std::string StoreClient::put_new(std::string_view key, std::string_view value) {
  Reply reply = call(store_protocol::put_new, key, value, {});
  if (reply.status != store_protocol::ok) {
    fail(ExitCode::rank, "the store at {} is full", place());
  }
  return std::move(reply.value);
}

void StoreClient::set_will(std::string_view key, std::string_view value) {
  call(store_protocol::will, key, value, {});
}

std::string StoreClient::local_address() const {
  return dltrain::local_address(socket_.get());
}

std::string StoreClient::server_address() const {
  return dltrain::peer_address(socket_.get());
}

}  // namespace dltrain
