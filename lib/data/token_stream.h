// A TokenStream: the token ids of a whole text one behind another, of 16 or 32 bits each, in memory
// or in mapped files that may be larger than it.
//
// Threads: does not change after it was made; any number of threads may read it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "text/tokenizer.h"

namespace dltrain {

// Ids that lie together.
struct TokenSegment {
  std::string name;                  // of the file, in errors
  std::span<const std::byte> bytes;  // little-endian
  int width = 2;                     // bytes an id: 2 or 4
  int64_t size() const { return static_cast<int64_t>(bytes.size()) / width; }
};

class TokenStream {
 public:
  struct About {
    int64_t vocab_size = 0;  // ids are below; 0: the segments are looked through
    std::shared_ptr<const Tokenizer> tokenizer = nullptr;  // that made the ids; null: not known
    bool checked = false;                                  // ids are known to be below vocab_size
  };
  // `memory` is what the segments point into. Segments must not be empty.
  TokenStream(std::vector<TokenSegment> segments, About about, std::shared_ptr<const void> memory);

  int64_t size() const { return begins_.back(); }
  int64_t vocab_size() const { return about_.vocab_size; }
  const std::shared_ptr<const Tokenizer>& tokenizer() const { return about_.tokenizer; }

  // Ids [first, first + count). Throws Error(data) with the place of an id that is not below the
  // vocabulary size, which costs time only where it was not known before.
  void read(int64_t first, int64_t count, int32_t* out) const;
  // Reads all ids; throws as read() does. Afterwards reading costs no checks.
  void check();
  // "train.bin, token 17".
  std::string place_of(int64_t position) const;

  // Calls use(segment number, ids) for all ids from `first` on, in pieces.
  template <typename Use>
  void for_each(int64_t first, int64_t count, const Use& use) const {
    std::vector<int32_t> ids;
    constexpr int64_t kPiece = 1 << 16;
    for (int64_t at = first; at < first + count; at += kPiece) {
      ids.resize(static_cast<size_t>(std::min(kPiece, first + count - at)));
      read(at, static_cast<int64_t>(ids.size()), ids.data());
      use(std::span<const int32_t>(ids));
    }
  }

 private:
  size_t segment_of(int64_t position) const;

  std::vector<TokenSegment> segments_;
  std::vector<int64_t> begins_;  // of each segment; then the size of all
  About about_;
  std::shared_ptr<const void> memory_;
};

// Collects ids, of 16 bits where the vocabulary allows it: in memory, or in a file.
class TokenCollector {
 public:
  // `file`: written instead of memory, and removed with the collector (a mapping of it stays);
  // empty: none.
  explicit TokenCollector(int64_t vocab_size, std::filesystem::path file = {});
  ~TokenCollector();

  // What follows comes from this file.
  void begin_segment(std::string name);
  void add(std::span<const int32_t> ids);
  int64_t size() const { return count_; }
  // What is held in memory by now, in bytes.
  uint64_t memory_bytes() const { return bytes_.size(); }
  // Segments without ids are left out. Throws Error(data) where there are no ids at all.
  std::shared_ptr<const TokenStream> finish(std::shared_ptr<const Tokenizer> tokenizer);

 private:
  template <typename T>
  void append(std::span<const int32_t> ids);
  void write_out();

  int width_;
  int64_t count_ = 0;
  std::vector<std::byte> bytes_;  // that are in no file
  std::optional<FileWriter> file_;
  std::vector<std::pair<std::string, int64_t>> segments_;  // name, first id
};

}  // namespace dltrain
