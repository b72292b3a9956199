// WordPiece as BERT has it (Devlin et al. 2019): text is normalised and cut at white space and
// punctuation; of each word the longest beginning that the vocabulary has is a token, then the
// longest of the rest with "##" in front, and so on. A word that cannot be made up is [UNK].
//
// Gives the tokens of Hugging Face's `tokenizers`, without [CLS] and [SEP], up to characters that
// newer versions of Unicode assign to other classes than utf8proc does.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace dltrain {

struct WordPieceParts {
  std::vector<std::string> tokens;  // by id; empty: no token has this id
  std::vector<int32_t> special;     // ids of [CLS], [MASK], …
  std::string unknown = "[UNK]", prefix = "##";
  size_t max_characters = 100;  // longer words are unknown
  bool clean_text = true;       // drops control characters
  bool chinese = true;          // each ideograph is a word
  bool lowercase = true;
  bool strip_accents = true;
  std::vector<TokenizerFile> files;
};

// Throws Error(data) with the place `name` for parts that do not fit together.
std::shared_ptr<const Tokenizer> word_piece_tokenizer(const std::string& name,
                                                      WordPieceParts parts);

}  // namespace dltrain
