// Reads the lines of a text file, plain or gzip (recognised by its content), in pieces: the memory
// does not depend on the size of the file or of the decompressed data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/byte_source.h"

namespace dltrain {

class LineReader {
 public:
  // Throws Error(data) if the file cannot be opened.
  explicit LineReader(const std::filesystem::path& path);
  // Reads a text in memory; `name` is its name in errors.
  LineReader(std::string name, std::string_view text);

  // Returns the next line without its end ("\n" or "\r\n"), valid until the next call; nothing at
  // the end. Skips a byte order mark. Throws Error(data) for damaged or truncated archives, read
  // errors, and lines of more than 64 MiB.
  std::optional<std::string_view> next();

  // The number of the line that next() returned, from 1.
  int64_t line() const { return line_; }
  // "digits.csv.gz:17"
  std::string location() const;
  const std::string& name() const { return name_; }

 private:
  bool refill();

  std::string name_;
  ByteSource read_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;  // the unread part of the buffer
  bool at_end_ = false;
  int64_t line_ = 0;
};

}  // namespace dltrain
