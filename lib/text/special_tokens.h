// The meanings of special tokens, and the search for their names in a text.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace dltrain {

// Records the usual meaning of a name. Of several names with one meaning the first is used.
void record_special_token(SpecialTokens& special, std::string_view name, int32_t id);

// The name of a token as it is written in a text; WordPiece decodes tokens with a space in front.
std::string_view name_of_token(const Tokenizer& tokenizer, int32_t id);

// Finds the names of tokens in a text. Of several at one place the longest wins.
class NamedTokens {
 public:
  struct Token {
    std::string name;  // not empty
    int32_t id = 0;
  };

  NamedTokens() = default;
  explicit NamedTokens(std::vector<Token> tokens);

  struct Found {
    size_t begin = 0, end = 0;  // of the name, in the text
    int32_t id = 0;
  };
  // Returns the first name at or after `from`.
  std::optional<Found> find(std::string_view text, size_t from) const;
  bool empty() const { return tokens_.empty(); }

  // Encodes the part of a text that begins at `offset`, which may be empty.
  using EncodePart =
      std::function<void(std::string_view part, size_t offset, std::vector<int32_t>&)>;
  // Returns an encoder that encodes the names as their tokens, if `special` is as_tokens, and the
  // text between them by `encode`. This object must outlive it.
  std::unique_ptr<TextEncoder> encoder(SpecialText special, EncodePart encode) const;

 private:
  std::vector<Token> tokens_;  // sorted by first byte, then by decreasing length
  uint32_t begin_[257] = {};   // index of the first token with each first byte
  bool one_first_ = false;     // all begin with the same byte
};

// The names of the special tokens, except that of the unknown token.
NamedTokens special_names(const Tokenizer& tokenizer);

}  // namespace dltrain
