// Decodes tokens one by one, up to the first of some stop texts.
#pragma once

#include <span>
#include <string>

#include "text/tokenizer.h"

namespace dltrain {

class TextStream {
 public:
  // Both must outlive the stream.
  TextStream(const Tokenizer& tokenizer, std::span<const std::string> stop)
      : decoder_(tokenizer, /*skip_special=*/true), stop_(stop) {}

  // Adds a token before the text, which affects the decoding of the next one but returns no text.
  void skip(int32_t token) { decoder_.next(token); }
  // Returns the text that is certain after one more token: complete characters that do not begin a
  // stop text. Returns nothing after a stop text.
  std::string next(int32_t token) { return take(decoder_.next(token)); }
  // Returns the rest of the text.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  std::string take(std::string more);

  TextDecoder decoder_;
  std::span<const std::string> stop_;
  std::string held_;  // may be the beginning of a stop text
  bool stopped_ = false;
};

}  // namespace dltrain
