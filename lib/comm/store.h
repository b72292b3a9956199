// A small key/value store over TCP, through which the ranks of a run find each other.
//
// One process runs the StoreServer (the launcher, or rank 0), every rank has one StoreClient. Keys
// and values are byte strings. The store holds addresses and other small facts, not tensors.
//
// Access: a client starts with a magic word, the protocol version and the run's secret. The server
// closes connections that send anything else, or messages above the limits. The secret keeps other
// users and other runs out. It is sent unencrypted, so it does not protect against somebody who
// reads the network's traffic.
//
// Errors: Error(rank) with the address, the key that was waited for and the time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/socket.h"

namespace dltrain {

inline constexpr size_t kStoreMaxKey = 1024;       // bytes
inline constexpr size_t kStoreMaxSecret = 256;     // bytes
inline constexpr size_t kStoreMaxValue = 1 << 20;  // bytes

// Serves until it is destroyed. One thread accepts clients, and each client has a thread that reads
// its messages and answers them: requests never wait for each other, so this takes no queues.
class StoreServer {
 public:
  using OnRefused = std::function<void(const std::string& address)>;

  // Port 0: any free port. Throws Error(rank) if the port is in use. `on_refused` is called once,
  // by a thread of the server, with the address of the first client that has a different secret.
  // `linger`: the longest time that the destructor waits for the clients to disconnect. `setting`:
  // see listen_on().
  StoreServer(const std::string& address, int port, std::string secret = {},
              OnRefused on_refused = {}, std::chrono::milliseconds linger = {},
              const std::string& setting = "");
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  int port() const { return bound_port(listener_.get()); }
  // Waits until no client is connected, at most for `limit`. The contents are lost with the server,
  // so clients that read there why a run ends need a moment.
  void wait_for_disconnects(std::chrono::milliseconds limit);

  // The connected clients now, and the messages that they have sent so far. A message has one or
  // more requests.
  struct Load {
    size_t clients = 0;
    uint64_t messages = 0;
  };
  Load load();

 private:
  struct Client {
    FileDescriptor socket;       // empty: it has ended
    std::string will_key, will;  // set when the connection ends; empty: none
    std::thread thread;
  };
  void accept_clients();
  void serve(Client& client);
  bool handshake(const Client& client);
  bool perform(Client& client, std::string_view message, std::string& reply);

  const std::string secret_;
  const std::chrono::milliseconds linger_;
  const FileDescriptor listener_;

  std::mutex mutex_;  // protects the members below
  std::condition_variable changed_;
  OnRefused on_refused_;  // emptied by its call
  std::list<Client> clients_;
  std::map<std::string, std::string> values_;
  Load load_;
  bool stopping_ = false;
  std::thread thread_;
};

struct StoreOptions {
  std::string address = "127.0.0.1";
  int port = 0;
  std::string secret = {};
  // Prepended to every key: the run's id and the attempt.
  std::string prefix = {};
  std::chrono::milliseconds connect_timeout{60'000};  // until the server answers
  std::chrono::milliseconds answer_time{10'000};      // for an answer
  const char* who = "rank";                           // this process, for messages
  // Ends the wait for a connection, an answer or a key with Error(stopped); see comm/socket.h.
  // Called by all threads that wait.
  InterruptCheck interrupted = {};
};

// The operations of StoreClient, which its methods describe.
enum class StoreOperation : uint8_t { set = 1, get, put_new, will, list };

struct StoreRequest {
  StoreOperation operation;
  std::string key, value = {};
};

// One connection, which the threads of a process share. The server answers at once, so a thread
// never holds it for long: one that waits for a key asks again, at growing intervals up to a
// quarter of a second. Once the connection is lost, every call throws the first error again.
class StoreClient {
 public:
  // Connects, retrying until options.connect_timeout.
  explicit StoreClient(StoreOptions options);

  void set(std::string_view key, std::string_view value);
  // Waits until the key exists.
  std::string get(std::string_view key,
                  std::chrono::milliseconds timeout = std::chrono::milliseconds(60'000));
  // Waits likewise; returns nothing after the timeout.
  std::optional<std::string> find(std::string_view key, std::chrono::milliseconds timeout);
  std::optional<std::string> try_get(std::string_view key) { return find(key, {}); }
  // Returns the values of all keys that begin with `prefix`, in the order of the keys.
  std::vector<std::string> list(std::string_view prefix);
  // Sets the key unless it exists, and returns its value. Of several callers one succeeds, and all
  // learn its value.
  std::string put_new(std::string_view key, std::string_view value);
  // The last will of this connection: the server performs put_new(key, value) when the connection
  // ends for any reason. A later call replaces it; an empty value removes it.
  void set_will(std::string_view key, std::string_view value);

  // Sends several requests in one message. Returns their values, in the same order; nothing where a
  // key does not exist.
  using Values = std::vector<std::optional<std::string>>;
  Values perform(std::span<const StoreRequest> requests);
  // Performs the requests until one of them has a value, at most for `timeout`.
  Values wait_for(std::span<const StoreRequest> requests, std::chrono::milliseconds timeout);
  // Takes the value of a list apart.
  static std::vector<std::string> listed(std::string_view value);

  // This host's numeric address in the server's network.
  std::string local_address() const { return dltrain::local_address(socket_.get()); }
  // The server's numeric address.
  std::string server_address() const { return peer_address(socket_.get()); }
  const StoreOptions& options() const { return options_; }

 private:
  std::string endpoint() const { return endpoint_text(options_.address, options_.port); }
  void handshake(Clock::time_point deadline);
  std::string perform_one(StoreOperation operation, std::string_view key,
                          std::string_view value = {});
  void check_interrupted();

  StoreOptions options_;
  FileDescriptor socket_;
  std::timed_mutex mutex_;     // held for a message and its answer; protects loss_
  std::optional<Error> loss_;  // why the connection was lost
};

}  // namespace dltrain
