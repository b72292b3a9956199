// Cuts text into the pieces within which byte-level BPE merges: words with their space, numbers,
// runs of punctuation. The pieces are the matches of the tokenizer's regular expression (PCRE2,
// compiled to machine code).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace dltrain {

// GPT-2's pattern, which Hugging Face's pre-tokenizer ByteLevel has built in.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Returns true for characters with the Unicode property White_Space.
bool is_white_space(uint32_t code);

class Splitter {
 public:
  // Throws Error(data) at the place `name` for an invalid pattern. \s means the Unicode property
  // White_Space, as in the libraries that the patterns are written for.
  Splitter(const std::string& name, const std::string& pattern);

  // Returns true if cutting a text after a line break between a character that is not white space
  // and an ASCII letter is known not to change the pieces. This holds for the common patterns.
  bool cuts_at_lines() const { return cuts_at_lines_; }

  // Iterates over the pieces of texts, for one thread. Copies share memory.
  class Walker {
   public:
    explicit Walker(const Splitter& splitter);
    // `text` is valid UTF-8 and must not move; `offset` is added to the offsets of errors.
    void start(std::string_view text, size_t offset);
    // Returns the next match or the unmatched text before it; empty at the end. Throws EncodeError
    // if the pattern needs too many steps.
    std::string_view next();

   private:
    struct Memory;
    std::shared_ptr<Memory> memory_;
    std::string_view text_;
    size_t offset_ = 0, at_ = 0, match_begin_ = 0, match_end_ = 0;
  };

 private:
  struct Code;
  std::shared_ptr<Code> code_;
  bool cuts_at_lines_ = false;
};

}  // namespace dltrain
