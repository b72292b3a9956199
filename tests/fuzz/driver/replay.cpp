// A main for fuzz targets where libFuzzer is absent: runs the target on every seed in the given
// folder, on truncations of it and on a fixed number of random changes. Same inputs on every run.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;
constexpr int kMutationsPerSeed = 500;
constexpr size_t kTruncationsPerSeed = 64;

Bytes read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

void run(const Bytes& input) {
  LLVMFuzzerTestOneInput(input.data(), input.size());
}

void change_at_random(Bytes& input, std::mt19937& random) {
  const int changes = 1 + static_cast<int>(random() % 4);
  for (int i = 0; i < changes; ++i) {
    const size_t at = input.empty() ? 0 : random() % input.size();
    const auto byte = static_cast<uint8_t>(random());
    switch (random() % 4) {
      case 0:
        input.insert(input.begin() + static_cast<std::ptrdiff_t>(at), byte);
        break;
      case 1:
        if (!input.empty()) input.erase(input.begin() + static_cast<std::ptrdiff_t>(at));
        break;
      case 2:
        if (!input.empty()) input[at] = byte;
        break;
      default:
        if (!input.empty()) input[at] ^= static_cast<uint8_t>(1U << (byte % 8));
    }
  }
}

void run_with_variants(const Bytes& seed) {
  run(seed);
  const size_t stride = std::max<size_t>(1, seed.size() / kTruncationsPerSeed);
  for (size_t size = 0; size < seed.size(); size += stride) {
    run(Bytes(seed.begin(), seed.begin() + static_cast<std::ptrdiff_t>(size)));
  }
  std::mt19937 random(static_cast<uint32_t>(seed.size()) + 1);
  for (int i = 0; i < kMutationsPerSeed; ++i) {
    Bytes input = seed;
    change_at_random(input, random);
    run(input);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || !std::filesystem::is_directory(argv[1])) {
    std::fprintf(stderr, "usage: %s FOLDER_OF_SEEDS\n", argv[0]);
    return 2;
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  if (files.empty()) {
    std::fprintf(stderr, "%s: no seeds in %s\n", argv[0], argv[1]);
    return 2;
  }
  run_with_variants({});
  for (const auto& file : files) run_with_variants(read_file(file));
  std::printf("%zu seeds: no failure\n", files.size());
}
