// Reads the files of a folder and compares them with their checksums in the same pass.
//
// A file is read in pieces, some of them ahead by other threads, so memory is bounded. Several
// readers (the ranks of a job) each verify a share of all bytes; of the rest they read only the
// ranges that they want. A file whose checksum has no pieces is verified by one reader.
//
// Threads: used by one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <span>
#include <string>

#include "base/checksum.h"

namespace dltrain {

// Bytes [begin, end) of a file.
struct ByteRange {
  uint64_t begin = 0, end = 0;
};

class VerifiedFiles {
 public:
  // Reader `number` of `readers`. `files`: those to be verified; others can be read too.
  explicit VerifiedFiles(std::filesystem::path folder, Checksums files = {}, int number = 0,
                         int readers = 1);

  using Use = std::function<void(uint64_t offset, std::span<const std::byte> bytes)>;
  // Calls use() with the bytes of the wanted ranges, which must be ascending and disjoint, piece by
  // piece in order, and verifies this reader's share of the file. Throws Error(storage) if the file
  // cannot be read, has another size than the checksums say, or a piece with another hash.
  void read(const std::string& name, std::span<const ByteRange> wanted = {}, const Use& use = {});
  // Verifies the rest of this reader's share. Returns a description of the first damage that this
  // reader has found, in read() or here; empty if there is none.
  std::string finish();

  // Bytes of files that this reader has read and hashed.
  uint64_t bytes_read() const { return read_; }
  uint64_t bytes_hashed() const { return hashed_; }

 private:
  struct Chunk;

  std::vector<Chunk> chunks_of(const std::string& name, uint64_t size,
                               std::span<const ByteRange> wanted) const;
  bool is_own(uint64_t begin) const { return begin >= first_ && begin < last_; }

  std::filesystem::path folder_;
  Checksums files_;
  std::map<std::string, uint64_t> begins_;  // of each file among all bytes
  uint64_t first_ = 0, last_ = 0;           // pieces that begin here are this reader's
  std::set<std::string> passed_;
  std::string damage_;
  uint64_t read_ = 0, hashed_ = 0;
};

// Compares every file that `folder`/checksums.json lists. Throws Error(storage) naming the first
// file that is missing or has another size or hash. Files that are not listed are ignored.
Checksums verify_checksums(const std::filesystem::path& folder);

}  // namespace dltrain
