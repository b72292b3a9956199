// The search for the most likely pieces of a unigram model in a normalized text.
//
// Sums of scores are in f64, as in Hugging Face's tokenizers. The library's sums in f32 let
// rounding decide between pieces that are equally likely, and in long texts between others too
// (2026-11-30: a text of 32 MB had 5 % more tokens).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/sentence_piece_model.h"

namespace dltrain {

class UnigramSearch {
 public:
  explicit UnigramSearch(const SentencePieceModel& model);

  struct Part {
    int32_t id = -1;  // -1: a character that no piece has
    uint32_t bytes = 0;
  };
  // The parts of a text in order.
  std::vector<Part> operator()(std::string_view text) const;

 private:
  // A node of the tree of all pieces by their bytes; the children are sorted.
  struct Node {
    unsigned char byte = 0;
    int32_t id = -1;  // of the piece that ends here
    double score = 0;
    size_t children = 0, children_end = 0;
  };
  std::vector<Node> nodes_;
  double unknown_ = 0;  // score of a character that no piece has
  bool words_ = false;  // words are independent: each begins with a sum of 0
};

}  // namespace dltrain
