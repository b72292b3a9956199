// WordPiece as in BERT (Devlin et al. 2019): text is normalized and cut at white space and
// punctuation. The first token of a word is its longest prefix in the vocabulary, the next one the
// longest prefix of the rest, written with "##" in front, and so on. Other words are [UNK].
//
// Gives the tokens of Hugging Face's `tokenizers`, without [CLS] and [SEP], except for characters
// whose class differs between its Unicode version and utf8proc's.
//
// The files are BERT's vocab.txt (one token per line, the id is the line number) with the flags of
// its tokenizer_config.json, and Hugging Face's tokenizer.json.
#include <algorithm>
#include <unordered_map>

#include <utf8proc.h>

#include "base/utf8.h"
#include "text/formats.h"
#include "text/json_fields.h"
#include "text/special_tokens.h"
#include "text/splitter.h"

namespace dltrain {
namespace {

struct WordPieceParts {
  std::vector<std::string> tokens;  // by id; empty for unused ids
  std::vector<int32_t> special;     // ids of [CLS], [MASK], …
  std::string unknown = "[UNK]", prefix = "##";
  size_t max_characters = 100;  // longer words are unknown
  bool clean_text = true;       // drops control characters
  bool chinese = true;          // each ideograph is a word
  bool lowercase = true;
  bool strip_accents = true;
  std::vector<TokenizerFile> files;
};

utf8proc_category_t category(uint32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}
// Returns true for the categories Cc, Cf, Cn, Co and Cs.
bool is_control_word_piece(uint32_t code) {
  if (code == '\t' || code == '\n' || code == '\r') return false;
  const auto c = category(code);
  return c == UTF8PROC_CATEGORY_CC || c == UTF8PROC_CATEGORY_CF || c == UTF8PROC_CATEGORY_CN ||
         c == UTF8PROC_CATEGORY_CO || c == UTF8PROC_CATEGORY_CS;
}
// All ASCII signs count, also those that Unicode calls symbols ($, +, ~).
bool is_punctuation(uint32_t code) {
  if (code < 0x80) {
    return (code >= 33 && code <= 47) || (code >= 58 && code <= 64) || (code >= 91 && code <= 96) ||
           (code >= 123 && code <= 126);
  }
  const auto c = category(code);
  return c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO;
}
bool is_ideograph(uint32_t code) {
  static constexpr uint32_t kRanges[][2] = {
      {0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
      {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
  return std::any_of(std::begin(kRanges), std::end(kRanges),
                     [&](const auto& range) { return code >= range[0] && code <= range[1]; });
}

class WordPieceTokenizer final : public Tokenizer {
 public:
  WordPieceTokenizer(const std::string& name, WordPieceParts parts) : parts_(std::move(parts)) {
    const auto refuse = [&](const std::string& message) {
      throw Error(ExitCode::data, message, name);
    };
    files_ = std::move(parts_.files);
    bytes_.resize(parts_.tokens.size());
    is_special_.resize(parts_.tokens.size());
    if (bytes_.empty() || vocab_size() > kMaxTokens) {
      refuse(fmt::format("has {} tokens", bytes_.size()));
    }
    std::vector<NamedTokens::Token> named;
    for (const int32_t id : parts_.special) {
      if (id < 0 || id >= vocab_size()) refuse(fmt::format("has a special token of id {}", id));
      const std::string& token = parts_.tokens[static_cast<size_t>(id)];
      is_special_[static_cast<size_t>(id)] = true;
      record_special_token(special_, token, id);
      if (!token.empty()) named.push_back({token, id});
    }
    named_ = NamedTokens(std::move(named));
    // The keys of ids_ refer to parts_.tokens, which is final.
    for (int32_t id = 0; id < vocab_size(); ++id) {
      const std::string& token = parts_.tokens[static_cast<size_t>(id)];
      if (token.empty()) continue;
      ids_.emplace(token, id);
      const bool continues =
          token.size() > parts_.prefix.size() && token.starts_with(parts_.prefix);
      bytes_[static_cast<size_t>(id)] =
          continues ? token.substr(parts_.prefix.size()) : " " + token;
    }
    const auto unknown = ids_.find(parts_.unknown);
    if (unknown == ids_.end()) refuse(fmt::format("has no token {}", parts_.unknown));
    special_.unknown = unknown->second;
  }

  std::string_view kind() const override { return "wordpiece"; }
  bool drops_first_space() const override { return true; }
  std::unique_ptr<TextEncoder> encoder(SpecialText special) const override;

  // Words end at spaces; names of special tokens normally have no spaces.
  size_t cut(std::string_view text, size_t limit) const override {
    const size_t at = limit == 0 ? std::string_view::npos : text.find_last_of(" \n", limit - 1);
    return at == std::string_view::npos ? 0 : at + 1;
  }

 private:
  class Words;

  WordPieceParts parts_;
  std::unordered_map<std::string_view, int32_t> ids_;
  NamedTokens named_;
};

// Cuts text into words and encodes them. Holds scratch memory: one per thread.
class WordPieceTokenizer::Words {
 public:
  explicit Words(const WordPieceTokenizer& owner) : owner_(owner) {}

  void encode(std::string_view text, std::vector<int32_t>& ids) {
    const WordPieceParts& parts = owner_.parts_;
    for (size_t at = 0; at < text.size();) {
      const uint32_t code = next_character(text, at);
      if (parts.clean_text && (code == 0 || code == 0xFFFD || is_control_word_piece(code)))
        continue;
      if (parts.chinese && is_ideograph(code)) {
        end_word(ids);
        add(code, ids);
        end_word(ids);
      } else {
        add(code, ids);
      }
    }
    end_word(ids);
  }

 private:
  // Adds one character of the cleaned text, decomposed and in lower case as configured.
  void add(uint32_t code, std::vector<int32_t>& ids) {
    if (!owner_.parts_.strip_accents || code < 0x80) return add_small(code, ids);
    utf8proc_int32_t parts[32];
    int unused = 0;
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), parts, 32,
                                               UTF8PROC_DECOMPOSE, &unused);
    if (count < 0 || count > 32) return add_small(code, ids);
    for (utf8proc_ssize_t i = 0; i < count; ++i) {
      const auto part = static_cast<uint32_t>(parts[i]);
      if (category(part) != UTF8PROC_CATEGORY_MN) add_small(part, ids);
    }
  }

  void add_small(uint32_t code, std::vector<int32_t>& ids) {
    if (owner_.parts_.lowercase) {
      // The only character whose lower case has two characters.
      if (code == 0x130) {
        add_character('i', ids);
        return add_character(0x307, ids);
      }
      code = static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
    }
    add_character(code, ids);
  }

  void add_character(uint32_t code, std::vector<int32_t>& ids) {
    if (is_white_space(code)) return end_word(ids);
    if (is_punctuation(code)) end_word(ids);
    ends_.push_back(word_.size());
    append_character(code, word_);
    if (is_punctuation(code)) end_word(ids);
  }

  // Appends the tokens of the word: repeatedly the longest prefix in the vocabulary.
  void end_word(std::vector<int32_t>& ids) {
    if (word_.empty()) return;
    const size_t before = ids.size();
    bool known = ends_.size() <= owner_.parts_.max_characters;
    ends_.push_back(word_.size());  // now ends_ has all borders of characters
    for (size_t begin = 0; known && begin + 1 < ends_.size();) {
      size_t end = ends_.size() - 1;
      auto found = owner_.ids_.end();
      for (; end > begin; --end) {
        piece_.assign(begin > 0 ? owner_.parts_.prefix : std::string());
        piece_.append(word_, ends_[begin], ends_[end] - ends_[begin]);
        found = owner_.ids_.find(piece_);
        if (found != owner_.ids_.end()) break;
      }
      known = found != owner_.ids_.end();
      if (known) ids.push_back(found->second);
      begin = end;
    }
    if (!known) {
      ids.resize(before);
      ids.push_back(*owner_.special_.unknown);
    }
    word_.clear();
    ends_.clear();
  }

  const WordPieceTokenizer& owner_;
  std::string word_, piece_;
  std::vector<size_t> ends_;  // offsets of the characters of word_
};

std::unique_ptr<TextEncoder> WordPieceTokenizer::encoder(SpecialText special) const {
  return named_.encoder(
      special, [words = Words(*this)](std::string_view part, size_t at, auto& ids) mutable {
        check_utf8(part, at);
        words.encode(part, ids);
      });
}

using nlohmann::json;

void put_token(const JsonFields& in, WordPieceParts& parts, const std::string& token,
               const json& id) {
  const auto at = static_cast<size_t>(in.id(id, token));
  if (at >= parts.tokens.size()) parts.tokens.resize(at + 1);
  parts.tokens[at] = token;
}

}  // namespace

std::shared_ptr<Tokenizer> word_piece_from_vocabulary(const std::string& name, std::string vocab,
                                                      std::string config) {
  WordPieceParts parts;
  size_t begin = 0;
  while (begin < vocab.size()) {
    size_t end = vocab.find('\n', begin);
    if (end == std::string::npos) end = vocab.size();
    std::string token = vocab.substr(begin, end - begin);
    if (token.ends_with('\r')) token.pop_back();
    parts.tokens.push_back(std::move(token));
    begin = end + 1;
  }
  for (const char* special : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) {
    for (size_t id = 0; id < parts.tokens.size(); ++id) {
      if (parts.tokens[id] == special) parts.special.push_back(static_cast<int32_t>(id));
    }
  }
  parts.files = {{"vocab.txt", std::move(vocab)}};
  if (!config.empty()) {
    const JsonFields in(name);
    const json root = parse_json_object(name, config);
    parts.lowercase = in.flag(root, "do_lower_case", true);
    parts.strip_accents = in.flag(root, "strip_accents", parts.lowercase);
    parts.chinese = in.flag(root, "tokenize_chinese_chars", true);
    parts.files.push_back({"tokenizer_config.json", std::move(config)});
  }
  return std::make_shared<WordPieceTokenizer>(name, std::move(parts));
}

std::shared_ptr<Tokenizer> word_piece_from_json(const std::string& name, std::string content,
                                                const json& root) {
  const JsonFields in(name);
  WordPieceParts parts;
  const json& model = in.object(root, "model", "the file");
  parts.unknown = in.text(model, "unk_token", "[UNK]");
  parts.prefix = in.text(model, "continuing_subword_prefix", "##");
  if (const auto most = model.find("max_input_chars_per_word"); most != model.end()) {
    if (!most->is_number_integer() || most->get<int64_t>() < 1) {
      in.refuse("max_input_chars_per_word is not a positive integer");
    }
    parts.max_characters = static_cast<size_t>(most->get<int64_t>());
  }
  const json& normalizer = in.object(root, "normalizer", "the file");
  const json& splitter = in.object(root, "pre_tokenizer", "the file");
  if (in.text(normalizer, "type", "") != "BertNormalizer" ||
      in.text(splitter, "type", "") != "BertPreTokenizer") {
    in.refuse("WordPiece needs a BertNormalizer and a BertPreTokenizer; others are not supported");
  }
  parts.clean_text = in.flag(normalizer, "clean_text", true);
  parts.chinese = in.flag(normalizer, "handle_chinese_chars", true);
  parts.lowercase = in.flag(normalizer, "lowercase", true);
  parts.strip_accents = in.flag(normalizer, "strip_accents", parts.lowercase);
  for (const auto& [token, id] : in.object(model, "vocab", "the model").items()) {
    put_token(in, parts, token, id);
  }
  const auto added = root.find("added_tokens");
  if (added != root.end() && added->is_array()) {
    for (const json& one : *added) {
      if (!one.is_object() || !one.contains("id")) in.refuse("has an added token without an id");
      put_token(in, parts, in.text(one, "content", ""), one["id"]);
      if (in.flag(one, "special", false)) parts.special.push_back(one["id"].get<int32_t>());
    }
  }
  parts.files = {{"tokenizer.json", std::move(content)}};
  return std::make_shared<WordPieceTokenizer>(name, std::move(parts));
}

}  // namespace dltrain
