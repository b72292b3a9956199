// Byte-level byte-pair encoding (Sennrich et al. 2016; byte-level as in GPT-2): patterns cut text
// into pieces, each byte of a piece is a token, and neighbouring pairs are merged, the pair of the
// lowest rank and the leftmost of equals first, until no pair has a rank.
//
// Gives the tokens of Hugging Face's `tokenizers` and of `tiktoken` for the same vocabulary, except
// for characters whose class differs between their Unicode version and PCRE2's.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/special_tokens.h"
#include "text/splitter.h"

namespace dltrain {

// The parts of a byte-level BPE tokenizer.
struct BpeParts {
  // A token that is recognised by its name before the text is cut.
  struct Added {
    std::string name;
    int32_t id = 0;
    bool special = false;                          // recognised with SpecialText::as_tokens only
    bool strip_left = false, strip_right = false;  // adjacent white space belongs to it
  };

  std::vector<std::string> tokens;                  // bytes by id; empty for unused ids
  std::vector<std::pair<int32_t, int32_t>> merges;  // by rank; `tokens` has the merged token
  std::vector<Added> added;
  std::vector<std::string> patterns;  // each cuts the pieces of the previous one
  bool whole_words = false;           // a piece that is a token is not merged (ignore_merges)
  bool normalize = false;             // to NFC, before anything else
  std::vector<TokenizerFile> files;
};

// Throws Error(data) at the place `name` for inconsistent parts.
std::shared_ptr<Tokenizer> bpe_tokenizer(const std::string& name, BpeParts parts);

}  // namespace dltrain
