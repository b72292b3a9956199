// Tokenizers without a learned vocabulary: one token a character, or one a byte.
//
// Special tokens, where there are any, have the ids behind those of the text. Their file is JSON:
//   {"format": "dltrain.tokenizer", "version": 1, "type": "char", "alphabet": "\n !…",
//    "special_tokens": ["<|endoftext|>"]}
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace dltrain {

// Which characters a text has; takes it in pieces. Throws EncodeError for broken UTF-8.
class Alphabet {
 public:
  void add(std::string_view text);
  // In the order of their code points, as UTF-8.
  std::string characters() const;

 private:
  std::vector<bool> seen_ = std::vector<bool>(0x110000);
};

// `alphabet`: the characters in the order of their ids, from 0. Throws Error(data) where it is
// empty, has a character twice or is no UTF-8, and for special tokens without a name or with one
// twice; `name` is then the place.
std::shared_ptr<const Tokenizer> char_tokenizer(const std::string& name,
                                                const std::string& alphabet,
                                                const std::vector<std::string>& special_tokens);

// Ids 0 to 255 are the bytes. Takes text that is no UTF-8, too.
std::shared_ptr<const Tokenizer> byte_tokenizer(const std::string& name,
                                                const std::vector<std::string>& special_tokens);

}  // namespace dltrain
