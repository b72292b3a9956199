// XXH3-128 hashes of files, and `checksums.json`: the files of a folder with size and hash.
//
//   {"format": 1, "files": {"model.safetensors": {"bytes": 1234, "xxh3_128": "0123…"}, …}}
//
// Files that are longer than a piece also have "piece_bytes" and "pieces", the concatenated XXH3-64
// of each piece, so that several readers can each verify a part of a file (base/verified_files.h).
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
  std::string xxh3_128;      // 32 lower-case hexadecimal digits
  uint64_t piece_bytes = 0;  // 0: the file has one piece
  std::string pieces = {};   // 16 digits of XXH3-64 a piece, in order
  bool operator==(const FileDigest&) const = default;
};

// Hashes a stream of bytes. Copies share their state.
class Hasher {
 public:
  Hasher();
  void update(std::span<const std::byte> data);
  // Returns the hash of all bytes so far.
  std::string hex() const;
  std::string hex64() const;  // their XXH3-64

 private:
  struct State;
  std::shared_ptr<State> state_;
};

inline constexpr uint64_t kPieceBytes = 4 << 20;
inline constexpr size_t kPieceDigits = 16;
// Returns the XXH3-64 of a piece, kPieceDigits digits.
std::string piece_hash(std::span<const std::byte> piece);

// Hashes the content of a file and its pieces.
class FileHasher {
 public:
  void update(std::span<const std::byte> data);
  FileDigest digest() const;

 private:
  Hasher whole_;
  Hasher piece_;
  uint64_t bytes_ = 0;
  std::string pieces_;  // of the complete ones
};

inline constexpr const char* kChecksumsFile = "checksums.json";

using Checksums = std::map<std::string, FileDigest>;  // by file name within the folder

std::string checksums_to_json(const Checksums& checksums);
// Throws Error(storage) at `location` if the text has no known format.
Checksums checksums_from_json(const std::string& text, const std::string& location);
// Reads `folder`/checksums.json.
Checksums read_checksums(const std::filesystem::path& folder);

}  // namespace dltrain
