// Many ranks that do no arithmetic, as threads of this process: how many connections, descriptors
// and messages each of them needs to start, to agree and to be watched.
#include <algorithm>
#include <atomic>
#include <bit>
#include <filesystem>
#include <thread>
#include <vector>

#include "base/error.h"
#include "catch.h"
#include "comm/host_collectives.h"
#include "comm/world.h"
#include "shared/host_memory.h"

using namespace dltrain;
using std::chrono::milliseconds;

namespace {

size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

struct ScaleCounts {
  size_t connections = 0, most_connections = 0;   // of all ranks, of one rank
  uint64_t most_barrier = 0, most_agreement = 0;  // exchanges of a rank with its peers
  size_t clients = 0, descriptors = 0;            // of the store; of all ranks and the store
  uint64_t at_start = 0, watched = 0;             // messages to the store
  double start_seconds = 0, watched_seconds = 0;
};

ScaleCounts run_scale(int ranks) {
  ScaleCounts counts;
  const size_t before = open_descriptors();
  allow_descriptors(8 * static_cast<size_t>(ranks));
  StoreServer server("127.0.0.1", 0);
  std::atomic<int> joined = 0, wrong = 0;
  std::atomic<bool> go_on = false;
  std::mutex mutex;
  const auto begin = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  const auto rank_thread = [&](int rank) {
    const auto device = make_host_device("test", "");
    RankEnvironment environment;
    environment.rank = rank;
    environment.world_size = ranks;
    environment.store_served = true;
    environment.master_port = server.port();
    const World world = join_world(environment, *device,
                                   {.watch = {.on_lost = [&](const std::string&) { ++wrong; }}});
    auto& group = dynamic_cast<HostCollectives&>(*world.collectives);
    const auto exchanges = [&](const auto& operation) {
      const uint64_t earlier = group.traffic().exchanges;
      operation();
      return group.traffic().exchanges - earlier;
    };
    group.barrier();
    if (++joined == ranks) counts.start_seconds = seconds();
    while (!go_on) std::this_thread::sleep_for(milliseconds(20));
    const uint64_t barrier = exchanges([&] { group.barrier(); });
    HostStream stream;
    const uint64_t agreement = exchanges([&] {
      float one = 0.5f;
      group.wait(group.all_reduce(&one, 1, DType::f32, ReduceOp::sum, stream), stream);
      wrong += one == 0.5f * static_cast<float>(ranks) ? 0 : 1;
    });
    std::vector<int> all(static_cast<size_t>(ranks));
    group.wait(group.all_gather(&rank, all.data(), 1, DType::i32, stream), stream);
    for (int i = 0; i < ranks; ++i) wrong += all[static_cast<size_t>(i)] == i ? 0 : 1;
    {
      const std::lock_guard lock(mutex);
      const size_t connections = group.traffic().connections;
      counts.connections += connections;
      counts.most_connections = std::max(counts.most_connections, connections);
      counts.most_barrier = std::max(counts.most_barrier, barrier);
      counts.most_agreement = std::max(counts.most_agreement, agreement);
    }
    world.watch->finish();
    group.barrier();
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(rank_thread, rank);
  while (joined < ranks) std::this_thread::sleep_for(milliseconds(5));
  counts.at_start = server.load().messages;
  counts.clients = server.load().clients;
  counts.descriptors = open_descriptors() - before;
  const double from = seconds();
  std::this_thread::sleep_for(milliseconds(1500));
  counts.watched = server.load().messages - counts.at_start;
  counts.watched_seconds = seconds() - from;
  go_on = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  return counts;
}

void check_scale(int ranks) {
  const ScaleCounts counts = run_scale(ranks);
  const auto all = static_cast<size_t>(ranks);
  const auto log2 = static_cast<size_t>(std::bit_width(all - 1));
  fmt::print(
      "{} ranks have started after {:.2f} s; {} descriptors; {} messages to the store until "
      "then, {:.0f} a second afterwards; at most {} connections of a rank\n",
      ranks, counts.start_seconds, counts.descriptors, counts.at_start,
      static_cast<double>(counts.watched) / counts.watched_seconds, counts.most_connections);
  // A tree, of which both ends are counted.
  CHECK(counts.connections == 2 * (all - 1));
  CHECK(counts.most_connections <= log2 + 1);
  CHECK(counts.most_barrier <= 2 * (log2 + 1));
  CHECK(counts.most_agreement <= 2 * (log2 + 1));
  CHECK(counts.clients == all);
  // A rank has a client with both ends here, and a port to listen on; the store has three more.
  CHECK(counts.descriptors <= 3 * all + 2 * (all - 1) + 3);
  // A greeting, an address, the wait for all, the address of the parent, the positions of a slow
  // start; rank 0 asks for each address.
  const double beats = 4 * counts.start_seconds + 1;
  CHECK(counts.at_start <= 5 * all + static_cast<uint64_t>(2 * beats) * all);
  // One message a heartbeat, each four times a second; twice, where two come late.
  CHECK(counts.watched <= 2 * all * static_cast<uint64_t>(4 * counts.watched_seconds + 2));
}

}  // namespace

TEST_CASE("a thousand ranks start, agree and are watched with few connections each") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  const std::vector<int> worlds{37, 64};
#else
  const std::vector<int> worlds{37, 64, 256, 1024};
#endif
  for (const int ranks : worlds) check_scale(ranks);
}
