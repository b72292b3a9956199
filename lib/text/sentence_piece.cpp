// sentence_piece_tokenizer: SentencePiece models (unigram and BPE), run by the library of that
// name.
//
// A text is encoded by one call of the library, since what it does at the begin of a text would
// otherwise happen within: large texts are better several files, or JSON Lines. Most models'
// normalization makes spaces of line breaks.
#include <sentencepiece_processor.h>

#include "text/formats.h"
#include "text/special_tokens.h"
#include "text/utf8_text.h"

namespace dltrain {
namespace {

constexpr std::string_view kSentencePieceSpace = "\xE2\x96\x81";  // U+2581 stands for a space

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(const std::string& name, std::string content) {
    const auto status = processor_.LoadFromSerializedProto(content);
    if (!status.ok() || processor_.GetPieceSize() < 1) {
      throw Error(ExitCode::data, "is no SentencePiece model that can be read", name);
    }
    files_ = {{"tokenizer.model", std::move(content)}};
    std::vector<NamedTokens::Token> named;
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      const std::string& piece = processor_.IdToPiece(id);
      bytes_.push_back(bytes_of_piece(id, piece));
      // User-defined pieces are text, but some have a meaning ("<mask>").
      note_special(special_, piece, id);
      if (processor_.IsControl(id) && !piece.empty()) named.push_back({piece, id});
    }
    note(processor_.bos_id(), special_.begin_of_text);
    note(processor_.eos_id(), special_.end_of_text);
    note(processor_.pad_id(), special_.padding);
    note(processor_.unk_id(), special_.unknown);
    named_ = NamedTokens(std::move(named));
  }

  std::string_view kind() const override { return "sentencepiece"; }
  int64_t vocab_size() const override { return static_cast<int64_t>(bytes_.size()); }
  const SpecialTokens& special() const override { return special_; }
  std::unique_ptr<TextEncoder> encoder(SpecialText special) const override {
    return std::make_unique<Encoder>(*this, special == SpecialText::as_tokens);
  }
  std::string_view bytes_of(int32_t id) const override {
    return id >= 0 && id < vocab_size() ? bytes_[static_cast<size_t>(id)] : std::string_view();
  }
  bool is_special(int32_t id) const override {
    return id >= 0 && id < vocab_size() && (processor_.IsControl(id) || processor_.IsUnknown(id));
  }
  bool drops_first_space() const override { return true; }
  std::optional<int32_t> find(std::string_view text) const override {
    for (size_t id = 0; id < bytes_.size(); ++id) {
      if (bytes_[id] == text) return static_cast<int32_t>(id);
    }
    return {};
  }
  size_t cut(std::string_view, size_t) const override { return 0; }
  const std::vector<TokenizerFile>& files() const override { return files_; }

 private:
  class Encoder final : public TextEncoder {
   public:
    Encoder(const SentencePieceTokenizer& owner, bool as_tokens)
        : owner_(owner), as_tokens_(as_tokens) {}
    void encode(std::string_view text, std::vector<int32_t>& ids) override {
      check_utf8(text);
      owner_.named_.encode(text, as_tokens_, ids,
                           [&](std::string_view part, size_t) { encode_text(part, ids); });
    }

   private:
    void encode_text(std::string_view text, std::vector<int32_t>& ids) {
      if (text.empty()) return;
      if (!owner_.processor_.Encode({text.data(), text.size()}, &found_).ok()) {
        throw EncodeError("the SentencePiece model cannot encode it", 0);
      }
      ids.insert(ids.end(), found_.begin(), found_.end());
    }

    const SentencePieceTokenizer& owner_;
    bool as_tokens_;
    std::vector<int> found_;
  };

  static void note(int id, std::optional<int32_t>& member) {
    if (id >= 0) member = id;
  }

  std::string bytes_of_piece(int id, const std::string& piece) const {
    if (processor_.IsByte(id)) {  // "<0x0A>"
      return std::string(1, static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16)));
    }
    if (processor_.IsUnknown(id)) return " \xE2\x81\x87 ";  // what the library gives: " ⁇ "
    std::string text;
    for (size_t at = 0; at < piece.size();) {
      const bool space = std::string_view(piece).substr(at).starts_with(kSentencePieceSpace);
      text += space ? ' ' : piece[at];
      at += space ? kSentencePieceSpace.size() : 1;
    }
    return text;
  }

  sentencepiece::SentencePieceProcessor processor_;
  std::vector<std::string> bytes_;  // by id
  SpecialTokens special_;
  NamedTokens named_;
  std::vector<TokenizerFile> files_;
};

}  // namespace

std::shared_ptr<const Tokenizer> sentence_piece_tokenizer(const std::string& name,
                                                          std::string content) {
  return std::make_shared<SentencePieceTokenizer>(name, std::move(content));
}

}  // namespace dltrain
