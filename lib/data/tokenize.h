// Tokenizes text files with several threads.
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
  // Approximate bytes of a unit of work; the tokenizer determines the cuts.
  size_t piece = 1 << 20;
};

// Calls use(ids) with the tokens of a text in order. Throws Error(data) with file, line and byte.
void tokenize(const TextFile& file, const Tokenizer& tokenizer, const TokenizeOptions& options,
              const std::function<void(std::span<const int32_t>)>& use);

}  // namespace dltrain
