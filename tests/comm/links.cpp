// The connections that small and large messages of ranks on CPUs take: how they are made, with
// strangers about, and what they say of peers that are lost, silent or elsewhere.
#include "comm/links.h"

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "catch.h"
#include "comm/link_hub.h"

using namespace dltrain;
using namespace std::chrono_literals;

namespace {

constexpr auto kLinksTimeout = 20'000ms;

std::vector<int> all_of(int ranks) {
  std::vector<int> all(static_cast<size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Ranks that are threads of this process: body(rank, links) runs on each of them.
template <typename Body>
void with_links(int ranks, std::chrono::milliseconds timeout, const Body& body) {
  std::vector<LinkHub> hubs;
  std::vector<LinkCard> cards;
  for (int r = 0; r < ranks; ++r) {
    hubs.emplace_back("127.0.0.1");
    cards.push_back(hubs.back().card());
  }
  const std::vector<int> all = all_of(ranks);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      Links links(
          hubs[static_cast<size_t>(r)].connect(cards, r, all, 0, Clock::now() + kLinksTimeout), all,
          timeout);
      body(r, links);
    });
  }
  for (std::thread& thread : threads) thread.join();
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

TEST_CASE("letters of all lengths arrive whole, in both directions at once") {
  // The longest are more than the sockets hold: nobody may wait to send before it receives.
  for (const size_t count : {size_t{0}, size_t{1}, size_t{5000}, size_t{5'000'000}}) {
    std::array<bool, 3> well{};
    with_links(3, kLinksTimeout, [&](int rank, Links& links) {
      bool good = true;
      for (uint64_t slot = 1; slot <= 3; ++slot) {
        std::vector<std::vector<uint32_t>> out, in;
        std::vector<Letter> letters;
        for (int peer = 0; peer < 3; ++peer) {
          // Unequal ones: each direction has a length of its own.
          out.push_back(content(rank, peer, count + static_cast<size_t>(rank)));
          in.emplace_back(count + static_cast<size_t>(peer));
        }
        for (int peer = 0; peer < 3; ++peer) {
          const auto p = static_cast<size_t>(peer);
          if (peer == rank) continue;
          letters.push_back(
              {peer, out[p].data(), out[p].size() * 4, in[p].data(), in[p].size() * 4});
        }
        links.exchange(slot, letters);
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
  with_links(2, kLinksTimeout, [&](int rank, Links& links) {
    std::array<char, 8> out{}, in{};
    const size_t bytes = kind == 1 && rank == 1 ? 4 : 8;
    const Letter letter{1 - rank, out.data(), bytes, in.data(), bytes};
    failures[static_cast<size_t>(rank)] = failure_of([&] {
      links.exchange(kind == 0 && rank == 1 ? 3 : 2, {&letter, 1});
    });
  });
  CHECK(failures[0] == "rank 1 has issued another operation");
  CHECK(failures[1] == "rank 0 has issued another operation");
  CHECK(Clock::now() - begin < kLinksTimeout);
}

TEST_CASE("a silent peer is named at the timeout, a lost one at once") {
  std::string silent, lost;
  std::atomic<bool> told = false;
  with_links(2, 200ms, [&](int rank, Links& links) {
    char byte = 0;
    const Letter letter{1 - rank, &byte, 1, &byte, 1};
    if (rank == 0) {
      silent = failure_of([&] { links.exchange(2, {&letter, 1}); });
      told = true;
    } else {
      while (!told) std::this_thread::sleep_for(1ms);
    }
  });
  CHECK(silent.starts_with("rank 1 did not answer within 200 ms"));
  const auto begin = Clock::now();
  with_links(2, kLinksTimeout, [&](int rank, Links& links) {
    char byte = 0;
    const Letter letter{1 - rank, &byte, 1, &byte, 1};
    if (rank == 0) lost = failure_of([&] { links.exchange(2, {&letter, 1}); });
  });
  CHECK(lost.starts_with("lost rank 1"));
  CHECK(Clock::now() - begin < kLinksTimeout);
}

TEST_CASE("another thread can end an exchange") {
  std::string own, of_peer;
  std::atomic<bool> ended = false;
  with_links(2, kLinksTimeout, [&](int rank, Links& links) {
    char byte = 0;
    const Letter letter{1 - rank, &byte, 1, &byte, 1};
    if (rank == 0) {
      std::thread waiting([&] { own = failure_of([&] { links.exchange(2, {&letter, 1}); }); });
      links.close();
      waiting.join();
      ended = true;
      return;
    }
    while (!ended) std::this_thread::sleep_for(1ms);
    // Rank 0's letter may have come before the end: then it is the next one that fails.
    of_peer = failure_of([&] {
      links.exchange(2, {&letter, 1});
      links.exchange(4, {&letter, 1});
    });
  });
  CHECK(own == "this rank has given its connections up");
  CHECK(of_peer.starts_with("lost rank 0"));
}

TEST_CASE("strangers on the port keep nobody from meeting") {
  std::vector<LinkHub> hubs;
  hubs.emplace_back("127.0.0.1");
  hubs.emplace_back("127.0.0.1");
  const std::vector<LinkCard> cards{hubs[0].card(), hubs[1].card()};
  const auto visit = [&](std::string_view said) {
    FileDescriptor socket =
        connect_to("127.0.0.1", static_cast<int>(cards[0].port), Clock::now() + 5s, {"the hub"});
    send_all(socket.get(), said.data(), said.size(), Clock::now() + 5s);
    return socket;
  };
  const FileDescriptor silent = visit(""), short_one = visit("GET /"),
                       wrong = visit(std::string(64, 'x'));
  const std::vector<int> ranks{0, 1};
  std::vector<FileDescriptor> of_one;
  std::thread other([&] { of_one = hubs[1].connect(cards, 1, ranks, 0, Clock::now() + 5s); });
  const auto of_zero = hubs[0].connect(cards, 0, ranks, 0, Clock::now() + 5s);
  other.join();
  REQUIRE((of_zero[1] && of_one[0]));
  CHECK((!of_zero[0] && !of_one[1]));
  CHECK(local_address(of_zero[1].get()) == peer_address(of_one[0].get()));
  // The one with a wrong token is shown the door.
  char byte = 0;
  CHECK(receive_all(wrong.get(), &byte, 1, Clock::now() + 5s) == Transfer::closed);
}

TEST_CASE("groups meet in any order, and who does not come is named") {
  std::vector<LinkHub> hubs;
  std::vector<LinkCard> cards;
  for (int r = 0; r < 3; ++r) {
    hubs.emplace_back("127.0.0.1");
    cards.push_back(hubs.back().card());
  }
  const std::vector<int> pair{0, 2}, all{0, 1, 2};
  // Rank 2 calls rank 0 for group 1 before rank 0 has met anybody for group 0.
  std::vector<FileDescriptor> two_pair, two_all, one_all;
  two_pair = hubs[2].connect(cards, 2, pair, 1, Clock::now() + 5s);
  std::thread one([&] { one_all = hubs[1].connect(cards, 1, all, 0, Clock::now() + 5s); });
  std::thread two([&] { two_all = hubs[2].connect(cards, 2, all, 0, Clock::now() + 5s); });
  const auto zero_all = hubs[0].connect(cards, 0, all, 0, Clock::now() + 5s);
  const auto zero_pair = hubs[0].connect(cards, 0, pair, 1, Clock::now() + 5s);
  one.join();
  two.join();
  const std::string hello = "hello";
  REQUIRE(send_all(zero_pair[1].get(), hello.data(), 5, Clock::now() + 5s) == Transfer::done);
  std::string heard(5, ' ');
  REQUIRE(receive_all(two_pair[0].get(), heard.data(), 5, Clock::now() + 5s) == Transfer::done);
  CHECK(heard == hello);
  CHECK(failure_of([&] { hubs[0].connect(cards, 0, pair, 2, Clock::now() + 50ms); }) ==
        "waited in vain for rank 2 to connect");
}
