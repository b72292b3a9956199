#include "text/simple_tokenizers.h"

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "config/utf8.h"
#include "text/formats.h"
#include "text/special_tokens.h"
#include "text/utf8_text.h"

namespace dltrain {
namespace {

// A text unit (character or byte) has an id below `units_.size()`; special tokens follow.
class SimpleTokenizer : public Tokenizer {
 public:
  SimpleTokenizer(const std::string& name, std::vector<std::string> units,
                  const std::vector<std::string>& special_tokens)
      : units_(std::move(units)), texts_(static_cast<int32_t>(units_.size())) {
    std::vector<NamedTokens::Token> tokens;
    std::set<std::string> known;
    for (const std::string& token : special_tokens) {
      if (token.empty() || find_invalid_utf8(token)) {
        throw Error(ExitCode::data, "a special token needs a name", name);
      }
      if (!known.insert(token).second) {
        throw Error(ExitCode::data, fmt::format("the special token '{}' is there twice", token),
                    name);
      }
      const auto id = static_cast<int32_t>(units_.size());
      tokens.push_back({token, id});
      note_special(special_, token, id);
      units_.push_back(token);
    }
    named_ = NamedTokens(std::move(tokens));
  }

  int64_t vocab_size() const override { return static_cast<int64_t>(units_.size()); }
  const SpecialTokens& special() const override { return special_; }
  std::string_view bytes_of(int32_t id) const override {
    return id >= 0 && id < vocab_size() ? units_[static_cast<size_t>(id)] : std::string_view();
  }
  bool is_special(int32_t id) const override { return id >= texts_ && id < vocab_size(); }
  std::optional<int32_t> find(std::string_view text) const override {
    const auto found = std::find(units_.begin(), units_.end(), text);
    if (found == units_.end()) return {};
    return static_cast<int32_t>(found - units_.begin());
  }
  size_t cut(std::string_view text, size_t limit) const override {
    return named_.empty() ? character_border(text, limit) : cut_at_line(text, limit);
  }
  const std::vector<TokenizerFile>& files() const override { return files_; }
  std::unique_ptr<TextEncoder> encoder(SpecialText special) const override {
    return std::make_unique<Encoder>(*this, special == SpecialText::as_tokens);
  }

 protected:
  virtual void encode_text(std::string_view text, size_t offset,
                           std::vector<int32_t>& ids) const = 0;

  void describe(nlohmann::ordered_json about) {
    about["special_tokens"] = std::vector<std::string>(units_.begin() + texts_, units_.end());
    files_ = {{"tokenizer.json", about.dump() + "\n"}};
  }

 private:
  class Encoder final : public TextEncoder {
   public:
    Encoder(const SimpleTokenizer& owner, bool as_tokens) : owner_(owner), as_tokens_(as_tokens) {}
    void encode(std::string_view text, std::vector<int32_t>& ids) override {
      owner_.named_.encode(text, as_tokens_, ids, [&](std::string_view part, size_t at) {
        owner_.encode_text(part, at, ids);
      });
    }

   private:
    const SimpleTokenizer& owner_;
    bool as_tokens_;
  };

  // The name of a special token must not be cut; nobody calls one across lines.
  static size_t cut_at_line(std::string_view text, size_t limit) {
    const size_t end = text.substr(0, limit).rfind('\n');
    return end == std::string_view::npos ? 0 : end + 1;
  }

  std::vector<std::string> units_;
  int32_t texts_;
  SpecialTokens special_;
  NamedTokens named_;
  std::vector<TokenizerFile> files_;
};

std::vector<std::string> characters_of(const std::string& name, const std::string& alphabet) {
  if (alphabet.empty()) throw Error(ExitCode::data, "its alphabet is empty", name);
  if (const auto bad = find_invalid_utf8(alphabet)) {
    throw Error(ExitCode::data, fmt::format("its alphabet is no UTF-8 (byte {})", *bad), name);
  }
  std::vector<std::string> characters;
  for (size_t at = 0; at < alphabet.size();) {
    const size_t begin = at;
    next_character(alphabet, at);
    characters.push_back(alphabet.substr(begin, at - begin));
  }
  return characters;
}

class CharTokenizer final : public SimpleTokenizer {
 public:
  CharTokenizer(const std::string& name, const std::string& alphabet,
                const std::vector<std::string>& special_tokens)
      : SimpleTokenizer(name, characters_of(name, alphabet), special_tokens) {
    int32_t id = 0;
    for (size_t at = 0; at < alphabet.size(); ++id) {
      const uint32_t code = next_character(alphabet, at);
      if (code >= ids_.size()) ids_.resize(code + 1, -1);
      if (ids_[code] >= 0) {
        throw Error(ExitCode::data, fmt::format("its alphabet has {} twice", shown_character(code)),
                    name);
      }
      ids_[code] = id;
    }
    describe(
        {{"format", kTokenizerFormat}, {"version", 1}, {"type", kind()}, {"alphabet", alphabet}});
  }

  std::string_view kind() const override { return "char"; }

 protected:
  void encode_text(std::string_view text, size_t offset, std::vector<int32_t>& ids) const override {
    check_utf8(text, offset);
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      const uint32_t code = next_character(text, at);
      const int32_t id = code < ids_.size() ? ids_[code] : -1;
      if (id < 0) {
        throw EncodeError(fmt::format("the character {} is not in the tokenizer's alphabet",
                                      shown_character(code)),
                          offset + begin);
      }
      ids.push_back(id);
    }
  }

 private:
  std::vector<int32_t> ids_;  // by code point; -1: not in the alphabet
};

std::vector<std::string> all_bytes() {
  std::vector<std::string> bytes;
  for (int i = 0; i < 256; ++i) bytes.emplace_back(1, static_cast<char>(i));
  return bytes;
}

class ByteTokenizer final : public SimpleTokenizer {
 public:
  ByteTokenizer(const std::string& name, const std::vector<std::string>& special_tokens)
      : SimpleTokenizer(name, all_bytes(), special_tokens) {
    describe({{"format", kTokenizerFormat}, {"version", 1}, {"type", kind()}});
  }

  std::string_view kind() const override { return "byte"; }

 protected:
  void encode_text(std::string_view text, size_t, std::vector<int32_t>& ids) const override {
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  }
};

}  // namespace

void Alphabet::add(std::string_view text) {
  check_utf8(text);
  for (size_t at = 0; at < text.size();) seen_[next_character(text, at)] = true;
}

std::string Alphabet::characters() const {
  std::string out;
  for (uint32_t code = 0; code < seen_.size(); ++code) {
    if (seen_[code]) append_character(code, out);
  }
  return out;
}

std::shared_ptr<const Tokenizer> char_tokenizer(const std::string& name,
                                                const std::string& alphabet,
                                                const std::vector<std::string>& special_tokens) {
  return std::make_shared<CharTokenizer>(name, alphabet, special_tokens);
}

std::shared_ptr<const Tokenizer> byte_tokenizer(const std::string& name,
                                                const std::vector<std::string>& special_tokens) {
  return std::make_shared<ByteTokenizer>(name, special_tokens);
}

}  // namespace dltrain
