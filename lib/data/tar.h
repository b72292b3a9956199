// Reads the regular files of a tar archive (POSIX ustar and GNU) sequentially.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "data/byte_source.h"

namespace dltrain {

class TarReader {
 public:
  explicit TarReader(ByteReader bytes) : bytes_(std::move(bytes)) {}

  struct Entry {
    std::string name;  // the path in the archive
    uint64_t size = 0;
  };

  // Advances to the next regular file; returns nothing at the end. Throws Error(data) for invalid
  // archives.
  std::optional<Entry> next();
  // Reads from the current file, at most its size in total.
  void read(std::span<uint8_t> out);

 private:
  ByteReader bytes_;
  uint64_t left_ = 0, padding_ = 0;  // of the current file
};

}  // namespace dltrain
