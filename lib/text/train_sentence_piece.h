// Trains a SentencePiece vocabulary (Kudo and Richardson 2018) with the library of that name.
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
  std::vector<std::string> special_tokens = {};  // such as <mask>
};

// `next_line` returns the lines of the training text and nothing at the end. Spaces are kept and
// unknown characters become bytes, so decoding restores any text. The same lines and options give
// the same tokenizer. Throws Error(data) if the library fails, for instance if the vocabulary is
// too large for the text.
std::shared_ptr<const Tokenizer> train_sentence_piece(
    const std::function<std::optional<std::string_view>()>& next_line,
    const TrainSentencePieceOptions& options);

}  // namespace dltrain
