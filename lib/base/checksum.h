// XXH3-128 hashes of files, and `checksums.json`: the files of a folder with size and hash.
//
//   {"format": 1, "files": {"model.safetensors": {"bytes": 1234, "xxh3_128": "0123…"}, …}}
//
// The hash detects damage (bad disks, truncated copies, manual edits); it is not a signature.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>

namespace dltrain {

struct FileDigest {
  uint64_t bytes = 0;
  std::string xxh3_128;  // 32 lower-case hexadecimal digits
  bool operator==(const FileDigest&) const = default;
};

// Hashes a stream of bytes. Copies share their state.
class Hasher {
 public:
  Hasher();
  void update(std::span<const std::byte> data);
  std::string hex() const;  // of all the bytes so far

 private:
  struct State;
  std::shared_ptr<State> state_;
};

inline constexpr const char* kChecksumsFile = "checksums.json";

using Checksums = std::map<std::string, FileDigest>;  // by file name within the folder

std::string checksums_to_json(const Checksums& checksums);
// Reads `folder`/checksums.json. Throws Error(storage) if it has no known format.
Checksums read_checksums(const std::filesystem::path& folder);

// Compares every file that `folder`/checksums.json lists. Throws Error(storage) naming the first
// file that is missing or has another size or hash. Files that are not listed are ignored.
Checksums verify_checksums(const std::filesystem::path& folder);

}  // namespace dltrain
