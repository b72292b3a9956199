// Text files of a data set, plain or gzip.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace dltrain {

// The files that names and glob patterns (*, ?, [abc]) mean: those of a pattern in the order of
// their names. Throws Error(data) for a pattern that matches nothing.
std::vector<std::string> expand_paths(const std::vector<std::string>& patterns);

// The text of one file: mapped, or inflated into memory where the content is gzip. A byte order
// mark at its start is left out. Throws Error(data) where it cannot be read or is empty.
class TextFile {
 public:
  explicit TextFile(std::string name);
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;

  const std::string& name() const { return name_; }
  std::string_view text() const { return text_; }
  // "input.txt:7:3": line and byte of the line, both from 1.
  std::string place_of(size_t offset) const;

 private:
  std::string name_;
  MappedFile file_;
  std::string inflated_;
  std::string_view text_;
};

}  // namespace dltrain
