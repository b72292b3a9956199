// Cuts text into the pieces within which byte-level BPE merges: words with their space, numbers,
// runs of punctuation. How is a regular expression of the tokenizer (PCRE2, compiled to machine
// code).
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace dltrain {

// GPT-2's pattern, which Hugging Face's pre-tokenizer ByteLevel has built in.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

class Splitter {
 public:
  // `name` is the place of errors: Error(data) for a pattern that is none. \s means the Unicode
  // property White_Space, as in the libraries that the patterns are written for.
  Splitter(const std::string& name, const std::string& pattern);
  ~Splitter();
  Splitter(Splitter&&) noexcept;
  Splitter& operator=(Splitter&&) noexcept;

  // Whether a text may be cut behind a line break that stands between a character that is no white
  // space and an ASCII letter, without a change of the pieces: known of the usual patterns.
  bool cuts_at_lines() const { return cuts_at_lines_; }

  // One thread's walk over texts.
  class Walker {
   public:
    explicit Walker(const Splitter& splitter);
    ~Walker();
    Walker(Walker&&) noexcept;
    // `text` is valid UTF-8 and stays where it is; `offset` is its place in what errors count from.
    void start(std::string_view text, size_t offset);
    // The next match, or what lies before it unmatched; empty at the end. Throws EncodeError where
    // the pattern needs too many steps.
    std::string_view next();

   private:
    struct Memory;
    std::unique_ptr<Memory> memory_;
    std::string_view text_;
    size_t offset_ = 0, at_ = 0, match_begin_ = 0, match_end_ = 0;
  };

 private:
  struct Code;
  std::unique_ptr<Code> code_;
  bool cuts_at_lines_ = false;
};

}  // namespace dltrain
