// What stands in a SentencePiece .model besides what its library tells: the file is a protocol
// buffer (sentencepiece_model.proto), of which the fields are read that other programs need.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dltrain {

struct SentencePieceModel {
  // The numbers of the file.
  enum class Kind : int32_t { unigram = 1, bpe = 2, word = 3, character = 4 };
  enum class Type : int32_t {
    normal = 1,
    unknown = 2,
    control = 3,
    user_defined = 4,
    unused = 5,
    byte = 6
  };
  struct Piece {
    std::string text;  // a space is U+2581
    float score = 0;   // log probability
    Type type = Type::normal;
  };
  std::vector<Piece> pieces;  // by id
  Kind kind = Kind::unigram;
  bool space_behind_words = false;  // treat_whitespace_as_suffix
  // Of the text before it is cut: replacements in the library's form; empty: none.
  std::string charsmap;
  bool space_in_front = true;    // add_dummy_prefix
  bool joins_spaces = true;      // remove_extra_whitespaces
  bool spaces_are_u2581 = true;  // escape_whitespaces
};

// Throws Error(data) with `name` as its place for bytes that are no such file.
SentencePieceModel read_sentence_piece_model(const std::string& name, std::string_view content);

// The same tokenizer as a tokenizer.json of Hugging Face that gives the same ids: a Unigram model
// with its normalizer. "" for models of another kind, or whose treatment of spaces has no
// counterpart there.
std::string unigram_json(const SentencePieceModel& model);

}  // namespace dltrain
