// WordPiece as in BERT (Devlin et al. 2019): text is normalized and cut at white space and
// punctuation. The first token of a word is its longest prefix in the vocabulary, the next one the
// longest prefix of the rest, written with "##" in front, and so on. Other words are [UNK].
//
// Gives the tokens of Hugging Face's `tokenizers`, without [CLS] and [SEP], except for characters
// whose class differs between its Unicode version and utf8proc's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace dltrain {

struct WordPieceParts {
  std::vector<std::string> tokens;  // by id; empty for unused ids
  std::vector<int32_t> special;     // ids of [CLS], [MASK], …
  std::string unknown = "[UNK]", prefix = "##";
  size_t max_characters = 100;  // longer words are unknown
  bool clean_text = true;       // drops control characters
  bool chinese = true;          // each ideograph is a word
  bool lowercase = true;
  bool strip_accents = true;
  std::vector<TokenizerFile> files;
};

// Throws Error(data) at the place `name` for inconsistent parts.
std::shared_ptr<const Tokenizer> word_piece_tokenizer(const std::string& name,
                                                      WordPieceParts parts);

}  // namespace dltrain
