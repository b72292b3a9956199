// The fields of a SentencePiece .model that its library does not expose. The file is a protocol
// buffer (sentencepiece_model.proto).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dltrain {

struct SentencePieceModel {
  // The values are those of the file format.
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
  bool space_after_words = false;  // treat_whitespace_as_suffix
  // Replacements before the text is cut, in the library's format; may be empty.
  std::string charsmap;
  bool space_in_front = true;    // add_dummy_prefix
  bool joins_spaces = true;      // remove_extra_whitespaces
  bool spaces_are_u2581 = true;  // escape_whitespaces
};

// Throws Error(data) at the place `name` for invalid files.
SentencePieceModel read_sentence_piece_model(const std::string& name, std::string_view content);

// Returns true if no piece goes on at a space after another character, so that words are encoded
// independently of each other.
bool has_separate_words(const SentencePieceModel& model);

// Returns the scores by id as the library's search uses them: a user-defined token beats any other
// segmentation of its bytes; bytes and unused tokens have the lowest score.
std::vector<double> search_scores(const SentencePieceModel& model);

// Converts a unigram model to a Hugging Face tokenizer.json that gives the same ids. Returns "" for
// models of another kind and for treatments of spaces that have no counterpart there. It differs in
// two points from transformers' own converter, which gives other ids there: leading and repeated
// spaces are kept where the model keeps them (a normalizer instead of the pre-tokenizer Metaspace),
// and user-defined tokens are found with the others, as the library does, so that no space is added
// after them.
std::string unigram_json(const SentencePieceModel& model);

}  // namespace dltrain
