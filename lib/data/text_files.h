// Text files of a data set, plain or gzip, and their conversion to tokens.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "text/tokenizer.h"

namespace dltrain {

// Expands glob patterns (*, ?, [abc]); the files of a pattern are sorted by name. Throws
// Error(data) for a pattern without matches, and for a folder; `key`: what they were given for.
std::vector<std::string> expand_paths(const std::vector<std::string>& patterns,
                                      const char* key = "data.path");

// The text of one file: mapped, or decompressed into memory if it is gzip. Skips a byte order mark.
// Throws Error(data) if the file cannot be read.
class TextFile {
 public:
  explicit TextFile(std::string name);
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;

  const std::string& name() const { return name_; }
  std::string_view text() const { return text_; }
  // Returns "input.txt:7:3": line and byte in the line, from 1.
  std::string location_of(size_t offset) const;

 private:
  std::string name_;
  MappedFile file_;
  std::string inflated_;
  std::string_view text_;
};

struct TokenizeOptions {
  SpecialText special = SpecialText::as_text;
  int threads = 1;
  // Approximate bytes of a unit of work; the tokenizer determines the cuts. SentencePiece needs
  // 170 times as much memory in each thread.
  size_t piece = 64 << 10;
};

// Warns that a text has the name of a special token, which is read as ordinary text.
void warn_of_name(const std::string& location, std::string_view name);

// Calls use(ids) with the tokens of a text in order, which several threads encode. Throws
// Error(data) with file, line and byte.
void tokenize(const TextFile& file, const Tokenizer& tokenizer, const TokenizeOptions& options,
              const std::function<void(std::span<const int32_t>)>& use);

}  // namespace dltrain
