// The memory that this process may use on its machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace dltrain {

// One limit of memory, in bytes.
struct MemoryLimit {
  // A limit of the machine counts memory that holds data, of all processes together, and so does a
  // budget, of the processes of a run. The others count addresses of this process, used or not
  // (ulimit -v), addresses that it may write to (ulimit -d), or memory of a GPU.
  enum class Of : uint8_t { machine, budget, addresses, data, gpu };
  std::string owner;  // the beginning of a sentence that ends in a size: "this machine has"
  Of of = Of::machine;
  uint64_t used = 0;  // by this process
  uint64_t has = 0;   // the bytes that it may use, including those that it uses now
  uint64_t peak = 0;  // the most that it has used so far
};

// Returns the limits of this process as they are now: the machine's memory without swap (its
// MemAvailable), control groups (v1 and v2: containers, batch systems), ulimit -v and -d. Files
// that are cached count as free. What cannot be read is left out. `root`: the folder of /proc and
// /sys, for tests.
std::vector<MemoryLimit> memory_limits(const std::filesystem::path& root = "/");

// Returns the number of bytes of a text such as 20GiB, 80GB or 1.5T: kB, MB, GB and TB are powers
// of 1000; KiB, MiB, GiB, TiB and K, M, G, T powers of 1024. nullopt: it is none.
std::optional<uint64_t> parse_bytes(const std::string& text);

// "9000 B", "1.5 MiB", "2.00 GiB"
std::string bytes_text(size_t bytes);

}  // namespace dltrain
