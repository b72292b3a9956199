#include "text/simple_tokenizers.h"

#include <set>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/utf8.h"
#include "text/formats.h"
#include "text/special_tokens.h"

namespace dltrain {
namespace {

// Characters or bytes have ids from 0; special tokens follow.
class SimpleTokenizer : public Tokenizer {
 public:
  SimpleTokenizer(const std::string& name, std::vector<std::string> units,
                  const std::vector<std::string>& special_tokens) {
    bytes_ = std::move(units);
    is_special_.resize(bytes_.size());
    std::vector<NamedTokens::Token> tokens;
    std::set<std::string> known;
    for (const std::string& token : special_tokens) {
      if (token.empty() || find_invalid_utf8(token)) {
        throw Error(ExitCode::data, "a special token is empty or not UTF-8", name);
      }
      if (!known.insert(token).second) {
        throw Error(ExitCode::data, fmt::format("the special token '{}' is listed twice", token),
                    name);
      }
      const auto id = static_cast<int32_t>(bytes_.size());
      tokens.push_back({token, id});
      record_special_token(special_, token, id);
      bytes_.push_back(token);
      is_special_.push_back(true);
    }
    named_ = NamedTokens(std::move(tokens));
  }

  // A cut must not split the name of a special token; names do not span lines.
  size_t cut(std::string_view text, size_t limit) const override {
    if (named_.empty()) return character_border(text, limit);
    const size_t end = text.substr(0, limit).rfind('\n');
    return end == std::string_view::npos ? 0 : end + 1;
  }
  std::unique_ptr<TextEncoder> encoder(SpecialText special) const override {
    return named_.encoder(special, [this](std::string_view part, size_t at, auto& ids) {
      encode_text(part, at, ids);
    });
  }

 protected:
  virtual void encode_text(std::string_view text, size_t offset,
                           std::vector<int32_t>& ids) const = 0;

  void set_file(nlohmann::ordered_json root) {
    auto& names = root["special_tokens"] = nlohmann::ordered_json::array();
    for (size_t id = 0; id < bytes_.size(); ++id) {
      if (is_special_[id]) names.push_back(bytes_[id]);
    }
    files_ = {{"tokenizer.json", json_text(root) + "\n"}};
  }

 private:
  NamedTokens named_;
};

std::vector<std::string> characters_of(const std::string& name, const std::string& alphabet) {
  if (alphabet.empty()) throw Error(ExitCode::data, "its alphabet is empty", name);
  if (const auto bad = find_invalid_utf8(alphabet)) {
    throw Error(ExitCode::data, fmt::format("its alphabet is not UTF-8 (byte {})", *bad), name);
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
    set_file(
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
    set_file({{"format", kTokenizerFormat}, {"version", 1}, {"type", kind()}});
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

std::shared_ptr<Tokenizer> char_tokenizer(const std::string& name, const std::string& alphabet,
                                          const std::vector<std::string>& special_tokens) {
  return std::make_shared<CharTokenizer>(name, alphabet, special_tokens);
}

std::shared_ptr<Tokenizer> byte_tokenizer(const std::string& name,
                                          const std::vector<std::string>& special_tokens) {
  return std::make_shared<ByteTokenizer>(name, special_tokens);
}

}  // namespace dltrain
