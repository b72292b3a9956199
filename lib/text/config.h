// The key `tokenizer` of text data.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "config/fields.h"
#include "text/tokenizer.h"

namespace dltrain {

// Calls its argument with every piece of the training text in order. Pieces end at character
// boundaries.
using TextPieces = std::function<void(const std::function<void(std::string_view)>&)>;

// One kind of tokenizer; tokenizer_table() has all.
struct TokenizerConfig : ConfigVariant {
  std::optional<bool> parse_special;  // the data chooses if it is absent

  void describe(Fields& f) override;
  // Returns true if the tokenizer is built from the training text.
  virtual bool learns() const { return false; }
  // Throws Error(data), or EncodeError for the training text. `training_text` is read only if
  // learns() is true.
  virtual std::shared_ptr<const Tokenizer> open(const TextPieces& training_text) const = 0;

  SpecialText special_text() const {
    return parse_special.value_or(false) ? SpecialText::as_tokens : SpecialText::as_text;
  }
};

const KindTable<TokenizerConfig>& tokenizer_table();

}  // namespace dltrain
