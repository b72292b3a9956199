// A TokenStream: the token ids of a text, of 16 or 32 bits each, in memory or in mapped files that
// may be larger than it.
//
// Threads: immutable, so any number of threads may read it.
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

// Contiguous ids.
struct TokenSegment {
  std::string name;                  // of the file, in errors
  std::span<const std::byte> bytes;  // little-endian
  int width = 2;                     // bytes an id: 2 or 4
  int64_t size() const { return static_cast<int64_t>(bytes.size()) / width; }
};

class TokenStream {
 public:
  struct Metadata {
    int64_t vocab_size = 0;  // ids are below this; 0: it is found by reading all ids
    std::shared_ptr<const Tokenizer> tokenizer = nullptr;  // of the ids; null: unknown
    bool checked = false;                                  // ids are known to be below vocab_size
    std::string vocabulary_of = {};                        // what gave vocab_size, in errors
  };
  // `memory` owns the bytes of the segments. Segments must not be empty.
  TokenStream(std::vector<TokenSegment> segments, Metadata metadata,
              std::shared_ptr<const void> memory);

  int64_t size() const { return begins_.back(); }
  int64_t vocab_size() const { return metadata_.vocab_size; }
  const std::shared_ptr<const Tokenizer>& tokenizer() const { return metadata_.tokenizer; }

  // Reads ids [first, first + count). Throws Error(data) with the place of an id that is not below
  // the vocabulary size, unless the ids were checked before.
  void read(int64_t first, int64_t count, int32_t* out) const;
  // Checks all ids; throws like read(). Later reads do not check.
  void check();
  // The file of the first token.
  const std::string& name() const { return segments_.front().name; }
  // "train.bin, token 17".
  std::string location_of(int64_t position) const;

  // Calls use(ids) for pieces of [first, first + count).
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
  Metadata metadata_;
  std::shared_ptr<const void> memory_;
};

// Collects ids in memory or in a file, with 16 bits per id if the vocabulary allows it.
class TokenCollector {
 public:
  // `file` stores the ids and is removed by the destructor (mappings stay valid); empty: memory.
  explicit TokenCollector(int64_t vocab_size, std::filesystem::path file = {});
  ~TokenCollector();

  // Names the source of the following ids.
  void begin_segment(std::string name);
  void add(std::span<const int32_t> ids);
  int64_t size() const { return count_; }
  // Bytes of ids in memory.
  uint64_t memory_bytes() const { return bytes_.size(); }
  // Leaves out empty segments. Throws Error(data) if there are no ids.
  std::shared_ptr<const TokenStream> finish(std::shared_ptr<const Tokenizer> tokenizer);

 private:
  template <typename T>
  void append(std::span<const int32_t> ids);
  void write_out();

  int width_;
  int64_t count_ = 0;
  std::vector<std::byte> bytes_;  // not in the file yet
  std::optional<FileWriter> file_;
  std::vector<std::pair<std::string, int64_t>> segments_;  // name, first id
};

}  // namespace dltrain
