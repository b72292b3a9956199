// Byte-level byte-pair encoding (Sennrich et al. 2016, as GPT-2 made it byte-level): text is cut
// into pieces by patterns, each byte of a piece is a token, and of all neighbours the pair with the
// lowest rank is merged, the leftmost first, until none has a rank.
//
// Gives the tokens of Hugging Face's `tokenizers` and of `tiktoken` for the same vocabulary, up to
// characters that newer versions of Unicode than PCRE2's assign to other classes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/special_tokens.h"
#include "text/splitter.h"

namespace dltrain {

// What a byte-level BPE tokenizer is made of.
struct BpeParts {
  // A token that is found in text before anything else, by its name.
  struct Added {
    std::string name;
    int32_t id = 0;
    bool special = false;                          // only where SpecialText::as_tokens is wanted
    bool strip_left = false, strip_right = false;  // white space beside it belongs to it
  };

  std::vector<std::string> tokens;                  // bytes by id; empty: no token has this id
  std::vector<std::pair<int32_t, int32_t>> merges;  // by rank; the merged token is in `tokens`
  std::vector<Added> added;
  std::vector<std::string> patterns;  // each cuts the pieces of the one before
  bool whole_words = false;           // a piece that is a token is not merged (ignore_merges)
  bool normalize = false;             // to NFC, before anything else
  std::vector<TokenizerFile> files;
};

// Throws Error(data) with the place `name` for parts that do not fit together.
std::shared_ptr<const Tokenizer> bpe_tokenizer(const std::string& name, BpeParts parts);

}  // namespace dltrain
