// A small key/value store over TCP, by which the ranks of one run find each other.
//
// One process holds the StoreServer (the launcher, or rank 0), every rank a StoreClient. Keys and
// values are byte strings. It carries addresses and small facts, never tensors.
//
// Who may talk to it: a client begins with a magic word, the protocol version and the run's secret;
// anything else is dropped, as are messages above the limits, so garbage on the port does no harm.
// The secret keeps strangers and other runs out; it travels unencrypted, so it is no protection
// against somebody who reads the network's traffic.
//
// Errors: Error(rank) with the address, naming what was waited for and for how long.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "comm/socket.h"

namespace dltrain {

inline constexpr uint32_t kStoreVersion = 2;
inline constexpr size_t kStoreMaxKey = 1024;          // bytes
inline constexpr size_t kStoreMaxSecret = 256;        // bytes
inline constexpr size_t kStoreMaxValue = 1 << 20;     // bytes
inline constexpr size_t kStoreMaxTotal = 256u << 20;  // bytes of keys and values held by a server

// Serves until destroyed, on a thread of its own.
class StoreServer {
 public:
  // Port 0 takes any free port. Throws Error(rank) when the port is in use. `on_refused`: called
  // once, by the server's thread, with the address of the first client that had another secret.
  StoreServer(const std::string& address, int port, std::string secret = {},
              std::function<void(const std::string& address)> on_refused = {});
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  int port() const;
  // Waits until no client is connected, but no longer than `limit`. What is in the store is gone
  // with the server: who reads there why a run ends needs a moment.
  void wait_for_departures(std::chrono::milliseconds limit) const;

 private:
  class Service;
  std::unique_ptr<Service> service_;
};

struct StoreOptions {
  std::string address = "127.0.0.1";
  int port = 0;
  std::string secret = {};
  // Put before every key: the run's id and the attempt, so that nothing is stale.
  std::string prefix = {};
  std::chrono::milliseconds connect_timeout{60'000};  // until the server answers
  std::chrono::milliseconds timeout{60'000};          // of get and wait, when not given
  std::chrono::milliseconds answer_time{10'000};      // for the server to answer, besides waiting
  const char* who = "rank";                           // this process, for messages
  // Gives up what is waited for, connection or answer, with Error(stopped). As in comm/socket.h.
  Interrupted interrupted = {};
};

// One connection; once it is lost every call throws the error that told so first. Safe from several
// threads, but a waiting get() holds up the others: a thread that waits long takes a client of its
// own.
class StoreClient {
 public:
  // Connects, retrying until options.connect_timeout.
  explicit StoreClient(StoreOptions options);

  void set(std::string_view key, std::string_view value);
  // Waits until the key exists.
  std::string get(std::string_view key);
  std::string get(std::string_view key, std::chrono::milliseconds timeout);
  // The value if the key comes to exist in that time.
  std::optional<std::string> find(std::string_view key, std::chrono::milliseconds timeout);
  // The value if it is there now.
  std::optional<std::string> try_get(std::string_view key);
  void wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout);
  // Adds to a decimal number (0 where the key is new) in one step and returns the sum.
  int64_t add(std::string_view key, int64_t delta);
  // Sets the key unless it exists; returns what it holds afterwards. Of several callers one wins,
  // and all learn who.
  std::string put_new(std::string_view key, std::string_view value);
  // A last will: the server does put_new(key, value) when this connection ends, however it ends.
  // One a connection: a later call replaces it, an empty value takes it back.
  void set_will(std::string_view key, std::string_view value);

  // The numeric address of this host as the server's network sees it.
  std::string local_address() const;
  // The numeric address under which this host reaches the server.
  std::string server_address() const;
  const StoreOptions& options() const { return options_; }

 private:
  struct Reply;
  std::string place() const;
  void greet(Clock::time_point deadline);
  Reply exchange(const std::string& frame, Clock::time_point deadline);
  [[noreturn]] void give_up() const;
  Reply call(uint8_t operation, std::string_view key, std::string_view value,
             std::chrono::milliseconds patience);
  std::string receive_frame(Clock::time_point deadline);

  StoreOptions options_;
  FileDescriptor socket_;
  std::optional<Error> loss_;  // why there is no connection any more
  std::mutex mutex_;
};

}  // namespace dltrain
