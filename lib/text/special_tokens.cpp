#include "text/special_tokens.h"

#include <algorithm>

namespace dltrain {

void note_special(SpecialTokens& special, std::string_view name, int32_t id) {
  struct Meaning {
    std::string_view name;
    std::optional<int32_t> SpecialTokens::*member;
  };
  static constexpr Meaning kMeanings[] = {
      {"<|endoftext|>", &SpecialTokens::end_of_text},
      {"<|end_of_text|>", &SpecialTokens::end_of_text},
      {"</s>", &SpecialTokens::end_of_text},
      {"<eos>", &SpecialTokens::end_of_text},
      {"[SEP]", &SpecialTokens::end_of_text},
      {"<|begin_of_text|>", &SpecialTokens::begin_of_text},
      {"<s>", &SpecialTokens::begin_of_text},
      {"<bos>", &SpecialTokens::begin_of_text},
      {"[CLS]", &SpecialTokens::begin_of_text},
      {"<pad>", &SpecialTokens::padding},
      {"[PAD]", &SpecialTokens::padding},
      {"<|pad|>", &SpecialTokens::padding},
      {"<|padding|>", &SpecialTokens::padding},
      {"<unk>", &SpecialTokens::unknown},
      {"[UNK]", &SpecialTokens::unknown},
      {"<mask>", &SpecialTokens::mask},
      {"[MASK]", &SpecialTokens::mask},
      {"<|mask|>", &SpecialTokens::mask},
  };
  for (const Meaning& meaning : kMeanings) {
    if (meaning.name == name && !(special.*meaning.member)) special.*meaning.member = id;
  }
}

NamedTokens::NamedTokens(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
  const auto first = [](const Token& token) { return static_cast<unsigned char>(token.name[0]); };
  std::sort(tokens_.begin(), tokens_.end(), [&](const Token& a, const Token& b) {
    if (first(a) != first(b)) return first(a) < first(b);
    if (a.name.size() != b.name.size()) return a.name.size() > b.name.size();
    return a.name < b.name;
  });
  for (const Token& token : tokens_) ++begin_[first(token) + 1];
  for (int i = 0; i < 256; ++i) begin_[i + 1] += begin_[i];
}

std::optional<NamedTokens::Found> NamedTokens::find(std::string_view text, size_t from) const {
  if (tokens_.empty()) return {};
  for (size_t at = from; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    for (uint32_t i = begin_[byte]; i < begin_[byte + 1]; ++i) {
      const Token& token = tokens_[i];
      if (text.substr(at).starts_with(token.name))
        return Found{at, at + token.name.size(), token.id};
    }
  }
  return {};
}

}  // namespace dltrain
