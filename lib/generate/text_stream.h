// The text of tokens as they come, up to the first of some texts that end it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace dltrain {

class TextStream {
 public:
  // Both must outlive the stream.
  TextStream(const Tokenizer& tokenizer, std::span<const std::string> stop)
      : decoder_(tokenizer, /*skip_special=*/true), stop_(stop) {}

  // A token before the text: what follows is decoded as behind it, but it gives nothing.
  void skip(int32_t token) { decoder_.next(token); }
  // What is certain after one more token: whole characters that do not begin a stop text. Nothing
  // more comes once it has stopped.
  std::string next(int32_t token) { return take(decoder_.next(token)); }
  // What is left at the end.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  std::string take(std::string more);

  TextDecoder decoder_;
  std::span<const std::string> stop_;
  std::string held_;  // may be the begin of a stop text
  bool stopped_ = false;
};

}  // namespace dltrain
