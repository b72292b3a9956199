// The connections between ranks on CPUs: how they are made, also when other programs connect, and
// the errors for peers that are lost, silent or at a different operation.
#include "comm/peer_connections.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "catch.h"
#include "comm/peer_connector.h"

using namespace dltrain;
using namespace std::chrono_literals;

namespace {

constexpr auto kConnectionsTimeout = 20'000ms;

std::vector<int> all_of(int ranks) {
  std::vector<int> all(static_cast<size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

HostGroupOptions options_of(int rank, int size,
                            std::chrono::milliseconds timeout = kConnectionsTimeout) {
  return {.rank = rank, .size = size, .timeout = timeout, .connect_timeout = kConnectionsTimeout};
}

// Ranks that are threads of this process: body(rank, hub) runs on each of them.
template <typename Body>
void with_connectors(int ranks, std::chrono::milliseconds timeout, const Body& body) {
  StoreServer server("127.0.0.1", 0);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      StoreClient store({.port = server.port()});
      PeerConnector connector(store, options_of(r, ranks, timeout));
      body(r, connector);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// body(rank, links) with links between all ranks.
template <typename Body>
void with_connections(int ranks, std::chrono::milliseconds timeout, const Body& body) {
  with_connectors(ranks, timeout, [&](int rank, PeerConnector& connector) {
    const auto connections = connector.connect(all_of(ranks), 0);
    body(rank, *connections);
  });
}

std::vector<uint32_t> content(int from, int to, size_t count) {
  std::vector<uint32_t> numbers(count);
  for (size_t i = 0; i < count; ++i) {
    numbers[i] = static_cast<uint32_t>(i * 2654435761u) ^ static_cast<uint32_t>(from * 16 + to);
  }
  return numbers;
}

std::string failure_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code() == ExitCode::rank ? error.what() : "another code";
  }
  return "no failure";
}

}  // namespace

TEST_CASE("data of all lengths arrives complete, in both directions at once") {
  // The longest are more than the sockets hold: nobody may wait to send before it receives.
  for (const size_t count : {size_t{0}, size_t{1}, size_t{5000}, size_t{5'000'000}}) {
    std::array<bool, 3> well{};
    with_connections(3, kConnectionsTimeout, [&](int rank, PeerConnections& connections) {
      bool good = true;
      for (uint64_t slot = 1; slot <= 3; ++slot) {
        std::vector<std::vector<uint32_t>> out, in;
        std::vector<PeerExchange> parts;
        for (int peer = 0; peer < 3; ++peer) {
          // Unequal ones: each direction has a length of its own.
          out.push_back(content(rank, peer, count + static_cast<size_t>(rank)));
          in.emplace_back(count + static_cast<size_t>(peer));
        }
        for (int peer = 0; peer < 3; ++peer) {
          const auto p = static_cast<size_t>(peer);
          if (peer == rank) continue;
          parts.push_back({peer, out[p].data(), out[p].size() * 4, in[p].data(), in[p].size() * 4});
        }
        connections.exchange(slot, parts);
        for (int peer = 0; peer < 3; ++peer) {
          const auto p = static_cast<size_t>(peer);
          good = good && (peer == rank || in[p] == content(peer, rank, in[p].size()));
        }
      }
      well[static_cast<size_t>(rank)] = good;
    });
    INFO(count);
    CHECK((well[0] && well[1] && well[2]));
  }
}

TEST_CASE("a peer at another operation is told at once") {
  const int kind = GENERATE(0, 1);  // another slot, another length
  std::array<std::string, 2> failures;
  const auto begin = Clock::now();
  with_connections(2, kConnectionsTimeout, [&](int rank, PeerConnections& connections) {
    std::array<char, 8> out{}, in{};
    const size_t bytes = kind == 1 && rank == 1 ? 4 : 8;
    const PeerExchange part{1 - rank, out.data(), bytes, in.data(), bytes};
    failures[static_cast<size_t>(rank)] = failure_of([&] {
      connections.exchange(kind == 0 && rank == 1 ? 3 : 2, {&part, 1});
    });
  });
  CHECK(failures[0] == "rank 1 has issued another operation");
  CHECK(failures[1] == "rank 0 has issued another operation");
  CHECK(Clock::now() - begin < kConnectionsTimeout);
}

TEST_CASE("a silent peer is named at the timeout, a lost one at once") {
  std::string silent, lost;
  std::atomic<bool> told = false;
  with_connections(2, 200ms, [&](int rank, PeerConnections& connections) {
    char byte = 0;
    const PeerExchange part{1 - rank, &byte, 1, &byte, 1};
    if (rank == 0) {
      silent = failure_of([&] { connections.exchange(2, {&part, 1}); });
      told = true;
    } else {
      while (!told) std::this_thread::sleep_for(1ms);
    }
  });
  CHECK(silent.starts_with("rank 1 did not answer within 200 ms"));
  const auto begin = Clock::now();
  with_connections(2, kConnectionsTimeout, [&](int rank, PeerConnections& connections) {
    char byte = 0;
    const PeerExchange part{1 - rank, &byte, 1, &byte, 1};
    if (rank == 0) lost = failure_of([&] { connections.exchange(2, {&part, 1}); });
  });
  CHECK(lost.starts_with("lost rank 1"));
  CHECK(Clock::now() - begin < kConnectionsTimeout);
}

TEST_CASE("another thread can end an exchange") {
  std::string own, of_peer;
  std::atomic<bool> ended = false;
  with_connections(2, kConnectionsTimeout, [&](int rank, PeerConnections& connections) {
    char byte = 0;
    const PeerExchange part{1 - rank, &byte, 1, &byte, 1};
    if (rank == 0) {
      std::thread waiting([&] { own = failure_of([&] { connections.exchange(2, {&part, 1}); }); });
      connections.close();
      waiting.join();
      ended = true;
      return;
    }
    while (!ended) std::this_thread::sleep_for(1ms);
    // Rank 0's data may have come before the end: then it is the next one that fails.
    of_peer = failure_of([&] {
      connections.exchange(2, {&part, 1});
      connections.exchange(4, {&part, 1});
    });
  });
  CHECK(own == "this rank has closed its connections");
  CHECK(of_peer.starts_with("lost rank 0"));
}

TEST_CASE("connections without the token do not keep the ranks from connecting") {
  StoreServer server("127.0.0.1", 0);
  StoreClient first({.port = server.port()}), second({.port = server.port()});
  std::unique_ptr<PeerConnector> one;
  std::thread other([&] { one = std::make_unique<PeerConnector>(second, options_of(1, 2)); });
  PeerConnector zero(first, options_of(0, 2));
  other.join();
  PeerEndpoint address;
  std::memcpy(&address, first.get("links/world/0").data(), sizeof address);
  const auto visit = [&](std::string_view said) {
    FileDescriptor socket =
        connect_to("127.0.0.1", static_cast<int>(address.port), Clock::now() + 5s, {"the hub"});
    send_all(socket.get(), said.data(), said.size(), Clock::now() + 5s);
    return socket;
  };
  const FileDescriptor silent = visit(""), short_one = visit("GET /"),
                       wrong = visit(std::string(64, 'x'));
  std::shared_ptr<PeerConnections> of_one;
  std::thread peer([&] { of_one = one->connect(all_of(2), 0); });
  const auto of_zero = zero.connect(all_of(2), 0);
  peer.join();
  CHECK(of_zero->rank() == 0);
  CHECK(of_one->rank() == 1);
  // The connection with a wrong token is closed.
  char byte = 0;
  CHECK(receive_all(wrong.get(), &byte, 1, Clock::now() + 5s) == Transfer::closed);
}

TEST_CASE("groups connect in any order, and a rank that does not connect is named") {
  std::array<char, 3> received{};
  std::string failure;
  with_connectors(3, kConnectionsTimeout, [&](int rank, PeerConnector& connector) {
    // Rank 2 connects to rank 0 for group 1 before rank 0 has connected for group 0.
    const std::vector<int> pair{0, 2};
    std::shared_ptr<PeerConnections> connections;
    if (rank == 2) connections = connector.connect(pair, 1);
    const auto all = connector.connect(all_of(3), 0);
    if (rank == 0) connections = connector.connect(pair, 1);
    if (rank == 1) return;
    const char own = rank == 0 ? 'a' : 'b';
    const PeerExchange part{1 - connections->rank(), &own, 1, &received[static_cast<size_t>(rank)],
                            1};
    connections->exchange(2, {&part, 1});
  });
  CHECK(received[0] == 'b');
  CHECK(received[2] == 'a');
  StoreServer server("127.0.0.1", 0);
  StoreClient store({.port = server.port()});
  store.set("links/world/1", std::string(sizeof(PeerEndpoint), '\0'));
  HostGroupOptions options = options_of(0, 2);
  options.connect_timeout = 50ms;
  PeerConnector alone(store, options);
  CHECK(failure_of([&] { alone.connect(all_of(2), 0); }) ==
        "rank 1 did not connect to rank 0 within 50 ms");
}
