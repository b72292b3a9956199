// The lines of a text file, plain or compressed with gzip (told by its content, not its name), read
// in pieces: neither the size of the file nor that of a hostile archive costs memory.
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
  // Throws Error(data) when the file cannot be opened.
  explicit LineReader(const std::filesystem::path& path);
  // Lines of a text in memory, which is called `name` in errors.
  LineReader(std::string name, std::string_view text);

  // The next line without its end ("\n" or "\r\n"), valid until the next call; nothing at the end.
  // A byte order mark before the first line is left out. Throws Error(data) for damaged or cut
  // archives, read errors, and lines of more than 64 MiB.
  std::optional<std::string_view> next();

  // Number of the line that next() returned, from 1.
  int64_t line() const { return line_; }
  // "digits.csv.gz:17"
  std::string place() const;
  const std::string& name() const { return name_; }

 private:
  bool refill();

  std::string name_;
  ByteSource read_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;  // what of the buffer is unread
  bool at_end_ = false;
  int64_t line_ = 0;
};

}  // namespace dltrain
