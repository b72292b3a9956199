#include "text/special_tokens.h"

#include <algorithm>

namespace dltrain {
namespace {

class NamedEncoder final : public TextEncoder {
 public:
  // `names`: null if names are ordinary text.
  NamedEncoder(const NamedTokens* names, NamedTokens::EncodePart encode)
      : names_(names), encode_(std::move(encode)) {}

  void encode(std::string_view text, std::vector<int32_t>& ids) override {
    size_t at = 0;
    while (const auto found = names_ != nullptr ? names_->find(text, at) : std::nullopt) {
      encode_(text.substr(at, found->begin - at), at, ids);
      ids.push_back(found->id);
      at = found->end;
    }
    encode_(text.substr(at), at, ids);
  }

 private:
  const NamedTokens* names_;
  NamedTokens::EncodePart encode_;
};

}  // namespace

void record_special_token(SpecialTokens& special, std::string_view name, int32_t id) {
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

std::string_view name_of_token(const Tokenizer& tokenizer, int32_t id) {
  const std::string_view text = tokenizer.bytes_of(id);
  return text.substr(tokenizer.kind() == "wordpiece" && text.starts_with(' ') ? 1 : 0);
}

NamedTokens special_names(const Tokenizer& tokenizer) {
  std::vector<NamedTokens::Token> out;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view name = name_of_token(tokenizer, id);
    if (!tokenizer.is_special(id) || name.empty() || id == tokenizer.special().unknown) continue;
    out.push_back({std::string(name), id});
  }
  return NamedTokens(std::move(out));
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
  one_first_ = !tokens_.empty() && first(tokens_.front()) == first(tokens_.back());
}

std::optional<NamedTokens::Found> NamedTokens::find(std::string_view text, size_t from) const {
  if (tokens_.empty()) return {};
  for (size_t at = from; at < text.size(); ++at) {
    if (one_first_) at = text.find(tokens_.front().name[0], at);  // nearly always: <
    if (at == std::string_view::npos) break;
    const auto byte = static_cast<unsigned char>(text[at]);
    for (uint32_t i = begin_[byte]; i < begin_[byte + 1]; ++i) {
      const Token& token = tokens_[i];
      if (text.substr(at).starts_with(token.name))
        return Found{at, at + token.name.size(), token.id};
    }
  }
  return {};
}

std::unique_ptr<TextEncoder> NamedTokens::encoder(SpecialText special, EncodePart encode) const {
  const bool as_tokens = special == SpecialText::as_tokens;
  return std::make_unique<NamedEncoder>(as_tokens ? this : nullptr, std::move(encode));
}

}  // namespace dltrain
