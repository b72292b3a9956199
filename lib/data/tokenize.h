// Tokenising text files with several threads.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/text_files.h"
#include "text/tokenizer.h"

namespace dltrain {

struct TokenizeOptions {
  SpecialText special = SpecialText::as_text;
  int threads = 1;
  // Bytes of text after which it is cut where the tokenizer allows it: a share of work.
  size_t piece = 1 << 20;
};

// Calls use(ids) for the tokens of a text in order. Throws Error(data) with file, line and byte.
void tokenize(const TextFile& file, const Tokenizer& tokenizer, const TokenizeOptions& options,
              const std::function<void(std::span<const int32_t>)>& use);

// Cuts a text into pieces that may be encoded one by one.
class TextCutter {
 public:
  TextCutter(std::string_view text, const Tokenizer& tokenizer, size_t piece)
      : text_(text), tokenizer_(tokenizer), piece_(piece) {}
  // The next piece; empty at the end.
  std::string_view next();

 private:
  std::string_view text_;
  const Tokenizer& tokenizer_;
  size_t piece_;
};

}  // namespace dltrain
