// The `tokenizer` key of text data: which tokenizer, and where it comes from.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "config/fields.h"
#include "text/tokenizer.h"

namespace dltrain {

// Calls its argument with every piece of the training text in order. Pieces are cut at characters.
using TextPieces = std::function<void(const std::function<void(std::string_view)>&)>;

// One kind of tokenizer; tokenizer_table() has all.
struct TokenizerConfig : Chosen {
  bool parse_special = false;

  void describe(Fields& f) override;
  // Whether it is made of the training text.
  virtual bool learns() const { return false; }
  // Throws Error(data). `training_text` is read only where the tokenizer learns; it throws
  // EncodeError through.
  virtual std::shared_ptr<const Tokenizer> open(const TextPieces& training_text) const = 0;

  SpecialText special_text() const {
    return parse_special ? SpecialText::as_tokens : SpecialText::as_text;
  }
};

const KindTable<TokenizerConfig>& tokenizer_table();

// One row of each file.
KindRow<TokenizerConfig> bpe_row();
KindRow<TokenizerConfig> byte_row();
KindRow<TokenizerConfig> char_row();
KindRow<TokenizerConfig> file_row();
KindRow<TokenizerConfig> sentencepiece_row();
KindRow<TokenizerConfig> wordpiece_row();

}  // namespace dltrain
