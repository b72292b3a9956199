// Tokenizers without a learned vocabulary: one token per character or per byte.
//
// The ids of special tokens follow those of the text. The file is JSON:
//   {"format": "dltrain.tokenizer", "version": 1, "type": "char", "alphabet": "\n !…",
//    "special_tokens": ["<|endoftext|>"]}
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace dltrain {

// Collects the characters of a text, which is given in pieces. Throws EncodeError for invalid
// UTF-8.
class Alphabet {
 public:
  void add(std::string_view text);
  // Returns them in the order of their code points, as UTF-8.
  std::string characters() const;

 private:
  std::vector<bool> seen_ = std::vector<bool>(0x110000);
};

// `alphabet` has the characters in the order of their ids. Throws Error(data) at the place `name`
// if it is empty, has a character twice or is not UTF-8, and for empty or repeated special tokens.
std::shared_ptr<Tokenizer> char_tokenizer(const std::string& name, const std::string& alphabet,
                                          const std::vector<std::string>& special_tokens);

// Ids 0 to 255 are the bytes. Accepts text that is not UTF-8.
std::shared_ptr<Tokenizer> byte_tokenizer(const std::string& name,
                                          const std::vector<std::string>& special_tokens);

}  // namespace dltrain
