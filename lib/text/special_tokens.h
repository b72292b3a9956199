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

  // Appends the ids of the names in `text`, if they count `as_tokens`, and calls between(text,
  // offset) for what stands between them, which appends its own.
  template <typename Between>
  void encode(std::string_view text, bool as_tokens, std::vector<int32_t>& ids,
              const Between& between) const {
    size_t at = 0;
    while (const auto found = as_tokens ? find(text, at) : std::nullopt) {
      between(text.substr(at, found->begin - at), at);
      ids.push_back(found->id);
      at = found->end;
    }
    between(text.substr(at), at);
  }

 private:
  std::vector<Token> tokens_;  // by first byte, then the longest first
  uint32_t begin_[257] = {};   // where those of each first byte begin
};

}  // namespace dltrain
