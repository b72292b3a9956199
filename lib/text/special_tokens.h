// Special tokens at the end of a vocabulary of characters or bytes, and what their names mean.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace dltrain {

// Notes the meaning that a name usually has; the first of several names with one meaning counts.
void note_special(SpecialTokens& special, std::string_view name, int32_t id);

// Tokens that stand in a text by their name. Of several at one place the longest is meant.
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
  // The first name at or behind `from`.
  std::optional<Found> find(std::string_view text, size_t from) const;
  bool empty() const { return tokens_.empty(); }

 private:
  std::vector<Token> tokens_;  // by first byte, then the longest first
  uint32_t begin_[257] = {};   // where those of each first byte begin
};

}  // namespace dltrain
