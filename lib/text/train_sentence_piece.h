// Learning a SentencePiece vocabulary (Kudo and Richardson 2018), by the library of that name.
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

struct TrainSentencePieceOptions {
  std::string type = "unigram";  // or bpe
  int64_t vocab_size = 8000;
  double character_coverage = 0.9995;            // rarer characters become bytes
  std::vector<std::string> special_tokens = {};  // never cut, such as <mask>
};

// `next_line` gives the lines of the training text, nothing at the end, and is asked once. Spaces
// are kept as they are and bytes serve for what the vocabulary lacks, so decoding gives back any
// text. The same lines and options give the same tokenizer. Throws Error(data) where the library
// refuses, for instance a vocabulary that is too large for the text.
std::shared_ptr<const Tokenizer> train_sentence_piece(
    const std::function<std::optional<std::string_view>()>& next_line,
    const TrainSentencePieceOptions& options);

}  // namespace dltrain
