// The regular files of a tar archive in order (POSIX ustar and GNU), read once from front to back.
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
    std::string name;  // with its folders, as the archive has it
    uint64_t size = 0;
  };

  // Goes to the next regular file; nothing at the end. Throws Error(data) for what is no tar
  // archive.
  std::optional<Entry> next();
  // Reads from the file that next() went to: no more than its size in total.
  void read(std::span<uint8_t> out);

 private:
  ByteReader bytes_;
  uint64_t left_ = 0, padding_ = 0;  // of the present file
};

}  // namespace dltrain
