// bench_text: megabytes of text a second that one core makes tokens of.
//
//   bench_text TOKENIZER TEXT [seconds]      TOKENIZER: a file or folder that load_tokenizer()
//   takes
//
// The text is encoded repeatedly, in pieces of 1 MiB like `type: text`, by one thread.
// Printed: tokens of the text, the best rate by the processor's time of this thread, as everything
// else that runs on the machine only makes it slower, and a checksum of the ids.
#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <span>

#include <fmt/core.h>
#include <zlib.h>

#include "data/text_files.h"

namespace {

using namespace dltrain;

double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: bench_text TOKENIZER TEXT [seconds]\n");
    return 2;
  }
  const double seconds = argc > 3 ? std::atof(argv[3]) : 2;
  try {
    const auto tokenizer = load_tokenizer(argv[1]);
    const TextFile file(argv[2]);
    size_t tokens = 0;
    double best = 1e30, all = 0;
    for (int pass = 0; pass < 3 || all < seconds; ++pass) {
      const double begin = cpu_seconds();
      tokens = 0;
      tokenize(file, *tokenizer, {}, [&](std::span<const int32_t> ids) { tokens += ids.size(); });
      const double elapsed = cpu_seconds() - begin;
      best = std::min(best, elapsed);
      all += elapsed;
    }
    uLong sum = 0;
    tokenize(file, *tokenizer, {}, [&](std::span<const int32_t> ids) {
      sum = crc32_z(sum, reinterpret_cast<const Bytef*>(ids.data()), ids.size_bytes());
    });
    fmt::print("{} tokens, {:.2f} MB/s, CRC-32 {:08x}\n", tokens,
               static_cast<double>(file.text().size()) / best / 1e6, sum);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
