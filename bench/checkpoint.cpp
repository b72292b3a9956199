// bench_checkpoint: how fast checkpoints are saved and loaded, beside the disk itself.
//
//   bench_checkpoint FOLDER [MIB [ROUNDS]]
//
// Writes (with fsync) and reads about MIB (default 1024) of plain bytes in FOLDER, with one thread
// in blocks of 4 MiB; saves a checkpoint of about this size of an MLP with AdamW and loads it.
// Reads follow a request to drop the files from the page cache, which not every file system obeys;
// the last column is a load from the page cache. Each figure is the best of ROUNDS (default 3), in
// GB/s of the checkpoint's bytes. Loading hashes every byte.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include "base/file.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/run_folder.h"
#include "config/load.h"
#include "cpu/engine.h"
#include "reference/engine.h"
#include "run/session.h"

using namespace dltrain;
namespace fs = std::filesystem;

namespace {

constexpr size_t kBlock = 4 << 20;

template <typename Work>
double seconds_of(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void drop_from_cache(const fs::path& path) {
  const FileDescriptor fd = open_regular(path, ExitCode::storage);
  posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
}

double write_plain(const fs::path& path, uint64_t bytes) {
  const std::vector<std::byte> block(kBlock, std::byte{0x5a});
  return seconds_of([&] {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    for (uint64_t at = 0; at < bytes; at += kBlock) {
      if (fd < 0 || ::write(fd, block.data(), kBlock) != static_cast<ssize_t>(kBlock)) {
        fail_storage(path, "write", errno);
      }
    }
    ::fsync(fd);
    ::close(fd);
  });
}

double read_plain(const fs::path& path) {
  std::vector<std::byte> block(kBlock);
  drop_from_cache(path);
  return seconds_of([&] {
    const FileDescriptor fd = open_regular(path, ExitCode::storage);
    while (::read(fd.get(), block.data(), kBlock) > 0) {
    }
  });
}

Experiment experiment_of(int64_t layers) {
  std::string model;
  for (int64_t i = 0; i < layers; ++i) model += "{linear: 1024}, ";
  return load_config<Experiment>(
      {.files = {},
       .overrides = {"model.layers=[" + model + "{linear: 8}]", "device=cpu",
                     "data.train={type: synthetic, shape: [1024], classes: 8, samples: 64}",
                     "optimizer={type: adamw, learning_rate: 0.01}",
                     "training={global_batch_size: 16, max_steps: 8}"}});
}

int run(const fs::path& folder, double mib, int rounds) {
  constexpr double kLayer = 3.0 * 1024 * 1024 * sizeof(float);  // with both moments
  Experiment experiment =
      experiment_of(std::max<int64_t>(static_cast<int64_t>(mib * (1 << 20) / kLayer), 1));
  Session session = open_session(
      experiment,
      {.engines = {.cpu = &cpu_engine(), .reference = &reference_engine()}, .evaluation = false});
  start_session(session);
  const fs::path plain = folder / "bench_checkpoint.plain", run = folder / "bench_checkpoint.run";
  double bytes = 0, best[5] = {1e9, 1e9, 1e9, 1e9, 1e9};
  for (int round = 0; round < rounds; ++round) {
    fs::remove_all(run);
    CheckpointWriter writer(run, {}, "name: bench\n", /*background=*/false);
    const CheckpointState state{.step = round, .global_batch = 16};
    fs::path checkpoint;
    const double save = seconds_of([&] {
      writer.save(*session.executor, state);
      checkpoint = *writer.finish();
    });
    const auto load = [&] {
      const std::string damage =
          load_chosen(*session.executor, find_checkpoint(checkpoint, Verify::when_loaded), nullptr);
      if (!damage.empty()) fail(ExitCode::storage, "{}", damage);
    };
    bytes = 0;
    for (const auto& entry : fs::directory_iterator(checkpoint)) {
      bytes += static_cast<double>(entry.file_size());
      drop_from_cache(entry.path());
    }
    const double cold = seconds_of(load), warm = seconds_of(load);
    const double times[5] = {write_plain(plain, static_cast<uint64_t>(bytes)), save,
                             read_plain(plain), cold, warm};
    for (int i = 0; i < 5; ++i) best[i] = std::min(best[i], times[i]);
  }
  fs::remove(plain);
  fs::remove_all(run);
  fmt::print("{:.0f} MB{:>16}{:>10}{:>12}{:>10}{:>16}\n", bytes / 1e6, "disk write", "save",
             "disk read", "load", "load, cached");
  fmt::print("GB/s{:>18.2f}{:>10.2f}{:>12.2f}{:>10.2f}{:>16.2f}\n", bytes / best[0] / 1e9,
             bytes / best[1] / 1e9, bytes / best[2] / 1e9, bytes / best[3] / 1e9,
             bytes / best[4] / 1e9);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: bench_checkpoint FOLDER [MIB [ROUNDS]]\n");
    return 2;
  }
  try {
    return run(argv[1], argc > 2 ? std::atof(argv[2]) : 1024, argc > 3 ? std::atoi(argv[3]) : 3);
  } catch (const Error& error) {
    fmt::print(stderr, "bench_checkpoint: {}\n", error.what());
    return static_cast<int>(error.code());
  }
}
