// Collectives of two ranks on this machine: ours (through the queue and thread that a step uses)
// against Gloo's own algorithms called plainly, over TCP connections of its own.
//
//   bench_collectives [ROUNDS [LARGEST_KIB]]   prints a line for each operation and size
//
// Both are timed in the same processes, one after the other in every round; the least time of the
// rounds counts. "ratio" is Gloo's time by ours: above 1 ours is faster.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/host_collectives.h"
#include "comm/store.h"

using namespace dltrain;

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kRanks = 2;

class NullStream final : public Stream {
 public:
  void synchronize() override {}
};

struct Case {
  const char* name;
  size_t bytes;  // of the whole message
  std::function<void()> ours;
  std::vector<std::function<void()>> gloo;  // the best of them counts
};

// Seconds of a call, both ranks beginning together.
double time_of(const std::function<void()>& call, Collectives& group, int repetitions) {
  call();
  group.barrier();
  const auto begin = Clock::now();
  for (int i = 0; i < repetitions; ++i) call();
  return std::chrono::duration<double>(Clock::now() - begin).count() / repetitions;
}

// For about 20 ms, the same on both ranks.
int repetitions(const std::function<void()>& call, Collectives& group) {
  double seconds = time_of(call, group, 3);
  NullStream stream;
  group.wait(group.all_reduce(&seconds, 1, DType::f64, ReduceOp::max, stream), stream);
  return static_cast<int>(std::clamp(0.02 / seconds, 2.0, 400.0));
}

void measure(const Case& one, Collectives& group, int rounds) {
  double ours = 1e9, gloo = 1e9;
  for (int round = 0; round < rounds; ++round) {
    ours = std::min(ours, time_of(one.ours, group, repetitions(one.ours, group)));
    for (const auto& call : one.gloo) {
      gloo = std::min(gloo, time_of(call, group, repetitions(call, group)));
    }
  }
  if (group.rank() == 0) {
    std::printf("%-16s %8zu KiB   ours %10.1f us  %6.2f GB/s   gloo %10.1f us   ratio %.2f\n",
                one.name, one.bytes / 1024, 1e6 * ours,
                1e-9 * static_cast<double>(one.bytes) / ours, 1e6 * gloo, gloo / ours);
    std::fflush(stdout);
  }
}

void run_rank(int rank, int port, const std::string& folder, int rounds, size_t largest) {
  StoreClient store({.port = port, .prefix = "bench/"});
  const auto group =
      std::make_unique<HostCollectives>(store, HostGroupOptions{.rank = rank, .size = kRanks});
  gloo::transport::tcp::attr attributes;
  attributes.hostname = "127.0.0.1";
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, kRanks);
  gloo::rendezvous::FileStore files(folder);
  context->connectFullMesh(files, device);
  NullStream stream;

  for (size_t bytes = 4096; bytes <= largest; bytes *= 4) {
    const size_t count = bytes / sizeof(float), part = count / kRanks;
    std::vector<float> data(count), other(count);
    const auto reduce_by = [&](gloo::AllreduceOptions::Algorithm algorithm) {
      return [&, algorithm] {
        gloo::AllreduceOptions options(context);
        options.setAlgorithm(algorithm);
        options.setOutput(data.data(), count);
        options.setReduceFunction(
            static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
        gloo::allreduce(options);
      };
    };
    measure({"all_reduce",
             bytes,
             [&] {
               group->wait(group->all_reduce(data.data(), count, DType::f32, ReduceOp::sum, stream),
                           stream);
             },
             {reduce_by(gloo::AllreduceOptions::Algorithm::RING),
              reduce_by(gloo::AllreduceOptions::Algorithm::BCUBE)}},
            *group, rounds);
    gloo::ReduceScatterHalvingDoubling<float> scatter(
        context, {data.data()}, static_cast<int>(count),
        {static_cast<int>(part), static_cast<int>(part)}, gloo::ReductionFunction<float>::sum);
    measure({"reduce_scatter",
             bytes,
             [&] {
               group->wait(group->reduce_scatter(data.data(), other.data(), part, DType::f32,
                                                 ReduceOp::sum, stream),
                           stream);
             },
             {[&] { scatter.run(); }}},
            *group, rounds);
    measure({"all_gather",
             bytes,
             [&] {
               group->wait(group->all_gather(other.data(), data.data(), part, DType::f32, stream),
                           stream);
             },
             {[&] {
               gloo::AllgatherOptions options(context);
               options.setInput(other.data(), part);
               options.setOutput(data.data(), count);
               gloo::allgather(options);
             }}},
            *group, rounds);
  }
  group->barrier();
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 5;
  const size_t largest = static_cast<size_t>(argc > 2 ? std::atoi(argv[2]) : 64 << 10) << 10;
  std::string folder = (std::filesystem::temp_directory_path() / "bench-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return 1;
  int ends[2];
  if (pipe(ends) != 0) return 1;
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      close(ends[1]);
      int port = 0;
      if (read(ends[0], &port, sizeof port) != sizeof port) _exit(1);
      try {
        run_rank(rank, port, folder, rounds, largest);
      } catch (const std::exception& e) {
        std::fprintf(stderr, "rank %d: %s\n", rank, e.what());
        _exit(1);
      }
      std::fflush(nullptr);
      _exit(0);
    }
    ranks.push_back(pid);
  }
  int code = 0;
  {
    const StoreServer server("127.0.0.1", 0);
    const int port = server.port();
    for (int rank = 0; rank < kRanks; ++rank) {
      if (write(ends[1], &port, sizeof port) != sizeof port) code = 1;
    }
    for (const pid_t pid : ranks) {
      int status = 0;
      waitpid(pid, &status, 0);
      if (status != 0) code = 1;
    }
  }
  std::filesystem::remove_all(folder);
  return code;
}
