#include "text/word_piece.h"

#include <algorithm>
#include <unordered_map>

#include <utf8proc.h>

#include "text/special_tokens.h"
#include "text/utf8_text.h"

namespace dltrain {
namespace {

constexpr size_t kWordPieceMaxVocabulary = 1 << 21;

utf8proc_category_t category(uint32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}
bool is_space(uint32_t code) {
  if (code == '\t' || code == '\n' || code == '\r' || code == ' ') return true;
  if (code == 0x0B || code == 0x0C || code == 0x85) return true;
  const auto c = category(code);
  return c == UTF8PROC_CATEGORY_ZS || c == UTF8PROC_CATEGORY_ZL || c == UTF8PROC_CATEGORY_ZP;
}
// Cc, Cf, Cn, Co and Cs.
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
    if (parts_.tokens.empty() || parts_.tokens.size() > kWordPieceMaxVocabulary) {
      refuse(fmt::format("has {} tokens", parts_.tokens.size()));
    }
    std::vector<NamedTokens::Token> named;
    flags_.resize(parts_.tokens.size());
    for (const int32_t id : parts_.special) {
      if (id < 0 || id >= vocab_size()) refuse(fmt::format("has a special token of id {}", id));
      flags_[static_cast<size_t>(id)] = true;
      note_special(special_, parts_.tokens[static_cast<size_t>(id)], id);
      if (!parts_.tokens[static_cast<size_t>(id)].empty()) {
        named.push_back({parts_.tokens[static_cast<size_t>(id)], id});
      }
    }
    named_ = NamedTokens(std::move(named));
    // parts_.tokens does not move any more.
    bytes_.resize(parts_.tokens.size());
    for (int32_t id = 0; id < vocab_size(); ++id) {
      const std::string& token = parts_.tokens[static_cast<size_t>(id)];
      if (token.empty()) continue;
      ids_.emplace(token, id);
      const bool goes_on = token.size() > parts_.prefix.size() && token.starts_with(parts_.prefix);
      bytes_[static_cast<size_t>(id)] = goes_on ? token.substr(parts_.prefix.size()) : " " + token;
    }
    const auto unknown = ids_.find(parts_.unknown);
    if (unknown == ids_.end()) refuse(fmt::format("has no token {}", parts_.unknown));
    unknown_ = unknown->second;
    special_.unknown = unknown_;
  }

  std::string_view kind() const override { return "wordpiece"; }
  int64_t vocab_size() const override { return static_cast<int64_t>(parts_.tokens.size()); }
  const SpecialTokens& special() const override { return special_; }
  std::unique_ptr<TextEncoder> encoder(SpecialText special) const override;
  std::string_view bytes_of(int32_t id) const override {
    return id >= 0 && id < vocab_size() ? bytes_[static_cast<size_t>(id)] : std::string_view();
  }
  bool is_special(int32_t id) const override {
    return id >= 0 && id < vocab_size() && flags_[static_cast<size_t>(id)];
  }
  bool drops_first_space() const override { return true; }
  std::optional<int32_t> find(std::string_view text) const override {
    const auto found = ids_.find(text);
    if (found == ids_.end()) return {};
    return found->second;
  }
  const std::vector<TokenizerFile>& files() const override { return parts_.files; }

  // Words end at spaces; names of special tokens with spaces are not usual.
  size_t cut(std::string_view text, size_t limit) const override {
    const size_t at = limit == 0 ? std::string_view::npos : text.find_last_of(" \n", limit - 1);
    return at == std::string_view::npos ? 0 : at + 1;
  }

 private:
  class Encoder;

  WordPieceParts parts_;
  std::vector<std::string> bytes_;  // by id
  std::vector<bool> flags_;         // special ones
  std::unordered_map<std::string_view, int32_t> ids_;
  NamedTokens named_;
  SpecialTokens special_;
  int32_t unknown_ = 0;
};

class WordPieceTokenizer::Encoder final : public TextEncoder {
 public:
  Encoder(const WordPieceTokenizer& owner, bool as_tokens) : owner_(owner), as_tokens_(as_tokens) {}

  void encode(std::string_view text, std::vector<int32_t>& ids) override {
    check_utf8(text);
    owner_.named_.encode(text, as_tokens_, ids,
                         [&](std::string_view part, size_t) { encode_text(part, ids); });
  }

 private:
  void encode_text(std::string_view text, std::vector<int32_t>& ids) {
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

  // One character of the cleaned text: decomposed and made small as the tokenizer says.
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
      // The one character whose small form is two.
      if (code == 0x130) {
        add_character('i', ids);
        return add_character(0x307, ids);
      }
      code = static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
    }
    add_character(code, ids);
  }

  void add_character(uint32_t code, std::vector<int32_t>& ids) {
    if (is_space(code)) return end_word(ids);
    if (is_punctuation(code)) end_word(ids);
    ends_.push_back(word_.size());
    append_character(code, word_);
    if (is_punctuation(code)) end_word(ids);
  }

  // The longest beginnings, one after the other.
  void end_word(std::vector<int32_t>& ids) {
    if (word_.empty()) return;
    const size_t before = ids.size();
    bool known = ends_.size() <= owner_.parts_.max_characters;
    ends_.push_back(word_.size());  // now the borders of its characters
    for (size_t begin = 0; known && begin + 1 < ends_.size();) {
      size_t end = ends_.size() - 1;
      std::optional<int32_t> id;
      for (; end > begin && !id; end -= id ? 0 : 1) {
        piece_.assign(begin > 0 ? owner_.parts_.prefix : std::string());
        piece_.append(word_, ends_[begin], ends_[end] - ends_[begin]);
        id = owner_.find(piece_);
      }
      known = id.has_value();
      if (known) ids.push_back(*id);
      begin = end;
    }
    if (!known) {
      ids.resize(before);
      ids.push_back(owner_.unknown_);
    }
    word_.clear();
    ends_.clear();
  }

  const WordPieceTokenizer& owner_;
  bool as_tokens_;
  std::string word_, piece_;
  std::vector<size_t> ends_;  // where its characters begin
};

std::unique_ptr<TextEncoder> WordPieceTokenizer::encoder(SpecialText special) const {
  return std::make_unique<Encoder>(*this, special == SpecialText::as_tokens);
}

}  // namespace

std::shared_ptr<const Tokenizer> word_piece_tokenizer(const std::string& name,
                                                      WordPieceParts parts) {
  return std::make_shared<WordPieceTokenizer>(name, std::move(parts));
}

}  // namespace dltrain
