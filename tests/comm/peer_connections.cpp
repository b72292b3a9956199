// The connections between ranks on CPUs: how they are made, also when other programs connect, and
// the errors for peers that are lost, silent or at a different operation.
#include "comm/peer_connections.h"

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>
#include <functional>
#include <numeric>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/philox.h"
#include "catch.h"
#include "comm/collective_algorithms.h"
#include "comm/peer_connector.h"
#include "comm/reduce.h"

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
    PeerConnections connections(connector, all_of(ranks), 0);
    body(rank, connections);
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
  const bool connected = GENERATE(true, false);
  const auto begin = Clock::now();
  with_connections(2, kConnectionsTimeout, [&](int rank, PeerConnections& connections) {
    char byte = 0;
    const PeerExchange part{1 - rank, &byte, 1, &byte, 1};
    if (connected) connections.exchange(2, {&part, 1});
    if (rank == 0) lost = failure_of([&] { connections.exchange(4, {&part, 1}); });
  });
  CHECK(lost.starts_with("lost rank 1"));
  CHECK(Clock::now() - begin < kConnectionsTimeout);
}

TEST_CASE("another thread can end an exchange") {
  const bool connected = GENERATE(false, true);
  std::string own, of_peer;
  std::atomic<bool> ended = false;
  with_connectors(2, kConnectionsTimeout, [&](int rank, PeerConnector& connector) {
    PeerConnections connections(connector, all_of(2), 0);
    char byte = 0;
    const PeerExchange part{1 - rank, &byte, 1, &byte, 1};
    if (connected) connections.exchange(2, {&part, 1});
    if (rank == 0) {
      std::thread waiting([&] { own = failure_of([&] { connections.exchange(4, {&part, 1}); }); });
      std::this_thread::sleep_for(5ms);
      connector.close();
      waiting.join();
      ended = true;
      return;
    }
    while (!ended) std::this_thread::sleep_for(1ms);
    // Rank 0's data may have come before the end: then it is the next one that fails.
    of_peer = failure_of([&] {
      connections.exchange(4, {&part, 1});
      connections.exchange(6, {&part, 1});
    });
  });
  CHECK(own == "this rank has closed its connections");
  CHECK(of_peer.starts_with("lost rank 0"));
}

TEST_CASE("connections without the token do not keep the ranks from connecting") {
  std::array<char, 2> received{};
  std::atomic<bool> visited = false;
  Transfer wrong_one = Transfer::done;
  StoreServer server("127.0.0.1", 0);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      StoreClient store({.port = server.port()});
      PeerConnector connector(store, options_of(rank, 2));
      PeerConnections connections(connector, all_of(2), 0);
      std::vector<FileDescriptor> strangers;
      if (rank == 1) {
        std::istringstream endpoint(store.get("peers/world/0"));
        std::string host;
        int port = 0;
        endpoint >> host >> port;
        for (const std::string& said :
             {std::string(), std::string("GET /"), std::string(64, 'x')}) {
          strangers.push_back(connect_to(host, port, Clock::now() + 5s, {"rank 0"}));
          send_all(strangers.back().get(), said.data(), said.size(), Clock::now() + 5s);
        }
        visited = true;
      }
      while (!visited) std::this_thread::sleep_for(1ms);
      const char own = rank == 0 ? 'a' : 'b';
      const PeerExchange part{1 - rank, &own, 1, &received[static_cast<size_t>(rank)], 1};
      connections.exchange(2, {&part, 1});
      // The connection with a wrong token is closed.
      char byte = 0;
      if (rank == 1) wrong_one = receive_all(strangers[2].get(), &byte, 1, Clock::now() + 5s);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(received[0] == 'b');
  CHECK(received[1] == 'a');
  CHECK(wrong_one == Transfer::closed);
}

TEST_CASE("pairs connect when they first exchange, in any order of groups") {
  std::array<char, 3> received{};
  std::array<size_t, 3> made_before{}, made{};
  with_connectors(3, kConnectionsTimeout, [&](int rank, PeerConnector& connector) {
    PeerConnections all(connector, all_of(3), 0);
    if (rank == 1) return;
    // Rank 2 connects to rank 0 for group 1 before rank 0 waits for group 0.
    PeerConnections pair(connector, std::vector<int>{0, 2}, 1);
    const char own = rank == 0 ? 'a' : 'b';
    char of_all = 0;
    const PeerExchange in_pair{1 - pair.rank(), &own, 1, &received[static_cast<size_t>(rank)], 1};
    const PeerExchange in_all{2 - rank, &own, 1, &of_all, 1};
    made_before[static_cast<size_t>(rank)] = all.traffic().connections + pair.traffic().connections;
    std::thread first([&] {
      rank == 0 ? all.exchange(2, {&in_all, 1}) : pair.exchange(2, {&in_pair, 1});
    });
    if (rank == 2) first.join();
    rank == 0 ? pair.exchange(2, {&in_pair, 1}) : all.exchange(2, {&in_all, 1});
    if (rank == 0) first.join();
    made[static_cast<size_t>(rank)] = all.traffic().connections + pair.traffic().connections;
  });
  CHECK(made_before == std::array<size_t, 3>{});
  CHECK(received[0] == 'b');
  CHECK(received[2] == 'a');
  CHECK(made == std::array<size_t, 3>{2, 0, 2});
}

TEST_CASE("a rank that does not connect, or has gone, is named") {
  std::array<std::string, 2> failures;
  std::atomic<bool> over = false;
  with_connectors(2, 50ms, [&](int rank, PeerConnector& connector) {
    PeerConnections connections(connector, all_of(2), 0);
    const PeerExchange part{1, nullptr, 0, nullptr, 0};
    if (rank == 0) failures[0] = failure_of([&] { connections.exchange(2, {&part, 1}); });
    if (rank == 0) over = true;
    while (!over) std::this_thread::sleep_for(1ms);
  });
  CHECK(failures[0].starts_with("rank 1 did not answer within 50 ms"));
  over = false;
  with_connectors(2, kConnectionsTimeout, [&](int rank, PeerConnector& connector) {
    PeerConnections connections(connector, all_of(2), 0);
    const PeerExchange part{0, nullptr, 0, nullptr, 0};
    if (rank == 0) {
      connector.close("the disk is full");
      const PeerExchange other{1, nullptr, 0, nullptr, 0};
      failures[0] = failure_of([&] { connections.exchange(2, {&other, 1}); });
      over = true;
    } else {
      while (!over) std::this_thread::sleep_for(1ms);
      failures[1] = failure_of([&] { connections.exchange(2, {&part, 1}); });
    }
  });
  CHECK(failures[0] == "this rank has closed its connections: the disk is full");
  CHECK(failures[1].starts_with("lost rank 0"));
}

TEST_CASE("sums along the tree of a large group have the bits of direct sums") {
  constexpr int kRanks = CollectiveAlgorithms::kDirectRanks + 5;
  constexpr size_t kCount = 300;
  const auto bits_of = [](int rank, size_t i) {
    return static_cast<uint16_t>(philox4x32(5, static_cast<uint32_t>(rank), i).v[0]);
  };
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32}) {
    std::vector<std::vector<std::byte>> inputs;
    std::vector<const void*> parts;
    for (int rank = 0; rank < kRanks; ++rank) {
      std::vector<std::byte> input(kCount * dtype_size(dtype));
      for (size_t i = 0; i < kCount; ++i) {
        // Finite numbers of several magnitudes and both signs.
        const uint16_t bits = bits_of(rank, i);
        const uint16_t bf16 = (bits & 0x8fff) | 0x3000, f16 = (bits & 0x8fff) | 0x2000;
        const float narrow = std::bit_cast<float>(static_cast<uint32_t>(bf16) << 16);
        const double wide = static_cast<double>(narrow) * 1.000000119;
        const float single = static_cast<float>(wide);
        const int32_t whole = bits - 30'000;
        const void* from = dtype == DType::f64    ? static_cast<const void*>(&wide)
                           : dtype == DType::f32  ? static_cast<const void*>(&single)
                           : dtype == DType::bf16 ? static_cast<const void*>(&bf16)
                           : dtype == DType::f16  ? static_cast<const void*>(&f16)
                                                  : static_cast<const void*>(&whole);
        std::memcpy(input.data() + i * dtype_size(dtype), from, dtype_size(dtype));
      }
      inputs.push_back(std::move(input));
    }
    for (const auto& input : inputs) parts.push_back(input.data());
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
      std::vector<std::byte> expected(kCount * dtype_size(dtype));
      reduce_parts(parts, expected.data(), kCount, dtype, op);
      std::atomic<int> equal = 0;
      with_connections(kRanks, kConnectionsTimeout, [&](int rank, PeerConnections& connections) {
        CollectiveAlgorithms algorithms(connections);
        auto data = inputs[static_cast<size_t>(rank)];
        algorithms.all_reduce(data.data(), kCount, dtype, op, 2);
        equal += data == expected ? 1 : 0;
        // Another root, and parts of a gather that are not complete on the last ranks.
        int word = rank;
        algorithms.broadcast(&word, sizeof word, 7, 4);
        std::vector<int> all(kRanks);
        algorithms.all_gather(&rank, all.data(), sizeof rank, 6);
        equal += word == 7 && all == all_of(kRanks) ? 0 : 1000;
        algorithms.barrier(8);
      });
      INFO(dtype_name(dtype) << (op == ReduceOp::sum ? " sum" : " max"));
      CHECK(equal == kRanks);
    }
  }
}
