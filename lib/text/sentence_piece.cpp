// sentence_piece_tokenizer: SentencePiece models (unigram and BPE), run by the library of that
// name.
//
// The library puts a space before each text and needs about 170 bytes of memory per byte. Long
// texts are cut at spaces where words are independent: not in models with pieces of several words,
// or whose normalization may join what is beside a cut. Most of the latter turn line breaks into
// spaces.
//
// For unigram models the library only normalizes the text; UnigramSearch finds the pieces.
#include <algorithm>
#include <optional>

#include <sentencepiece_processor.h>

#include "text/formats.h"
#include "text/sentence_piece_model.h"
#include "text/special_tokens.h"
#include "text/unigram_search.h"

namespace dltrain {
namespace {

constexpr std::string_view kSentencePieceSpace = "\xE2\x96\x81";  // U+2581 stands for a space

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(const std::string& name, std::string content) {
    const auto status = processor_.LoadFromSerializedProto(content);
    if (!status.ok() || processor_.GetPieceSize() < 1) {
      throw Error(ExitCode::data, "is not a readable SentencePiece model", name);
    }
    const SentencePieceModel model = read_sentence_piece_model(name, content);
    if (model.kind == SentencePieceModel::Kind::unigram) search_.emplace(model);
    files_ = {{"tokenizer.model", std::move(content)}};
    using Kind = SentencePieceModel::Kind;
    cuts_ = (model.kind == Kind::unigram || model.kind == Kind::bpe) && model.charsmap.empty() &&
            model.spaces_are_u2581 && has_separate_words(model);
    std::vector<NamedTokens::Token> named;
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      const std::string& piece = processor_.IdToPiece(id);
      bytes_.push_back(bytes_of_piece(id, piece));
      is_special_.push_back(processor_.IsControl(id) || processor_.IsUnknown(id));
      // User-defined pieces are text, but some names have a meaning ("<mask>").
      record_special_token(special_, piece, id);
      if (processor_.IsControl(id) && !piece.empty()) {
        named.push_back({piece, id});
        name_ends_ += piece.back();
      }
      if (processor_.IsByte(id)) {
        byte_ids_.resize(256);
        byte_ids_[static_cast<unsigned char>(bytes_.back()[0])] = id;
      }
    }
    note(processor_.bos_id(), special_.begin_of_text);
    note(processor_.eos_id(), special_.end_of_text);
    note(processor_.pad_id(), special_.padding);
    note(processor_.unk_id(), special_.unknown);
    // Several unknown characters are one token.
    const bool known = processor_.PieceToId(kSentencePieceSpace.data()) != processor_.unk_id();
    cuts_ = cuts_ && (known || !byte_ids_.empty());
    named_ = NamedTokens(std::move(named));
  }

  std::string_view kind() const override { return "sentencepiece"; }
  bool drops_first_space() const override { return true; }
  // Cuts before a space after another character, which must not end the name of a special token.
  size_t cut(std::string_view text, size_t limit) const override {
    size_t at = cuts_ ? text.rfind(' ', limit) : 0;
    while (at != text.npos && at > 0) {
      const char before = text[at - 1];
      if (before != ' ' && before != kSentencePieceSpace.back() &&
          name_ends_.find(before) == name_ends_.npos) {
        return at;
      }
      at = text.rfind(' ', at - 1);
    }
    return 0;
  }
  std::unique_ptr<TextEncoder> encoder(SpecialText special) const override {
    return named_.encoder(special, [this](std::string_view part, size_t at, auto& ids) {
      check_utf8(part, at);
      if (part.empty()) return;
      std::string normalized;
      {
        sentencepiece::ImmutableSentencePieceText found;
        if (!processor_.Encode({part.data(), part.size()}, found.mutable_proto()).ok()) {
          throw EncodeError("the SentencePiece model cannot encode it", at);
        }
        for (size_t i = 0; i < found.pieces_size(); ++i) {
          const auto piece = found.pieces(static_cast<int>(i));
          const auto id = static_cast<int>(piece.id());
          if (!search_) {
            ids.push_back(id);
          } else {
            normalized += processor_.IsByte(id) ? bytes_of(id) : piece.piece();
          }
        }
      }
      if (search_) search(normalized, ids);
    });
  }

 protected:
  // A character for private use, which no vocabulary has.
  std::string_view apart() const override { return "\xEE\x80\x80"; }

 private:
  // Appends the ids of a normalized text. Unknown characters are bytes, or together one token.
  void search(std::string_view text, std::vector<int32_t>& ids) const {
    bool after_unknown = false;
    for (const auto& [id, bytes] : (*search_)(text)) {
      if (id >= 0) {
        ids.push_back(id);
      } else if (!byte_ids_.empty()) {
        for (const char c : text.substr(0, bytes)) {
          ids.push_back(byte_ids_[static_cast<unsigned char>(c)]);
        }
      } else if (!after_unknown) {
        ids.push_back(processor_.unk_id());
      }
      after_unknown = id < 0;
      text.remove_prefix(bytes);
    }
  }

  static void note(int id, std::optional<int32_t>& member) {
    if (id >= 0) member = id;
  }

  std::string bytes_of_piece(int id, const std::string& piece) const {
    if (processor_.IsByte(id)) {  // "<0x0A>"
      return std::string(1, static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16)));
    }
    if (processor_.IsUnknown(id)) return " \xE2\x81\x87 ";  // as the library decodes it: " ⁇ "
    std::string text;
    for (size_t at = 0; at < piece.size();) {
      const bool space = std::string_view(piece).substr(at).starts_with(kSentencePieceSpace);
      text += space ? ' ' : piece[at];
      at += space ? kSentencePieceSpace.size() : 1;
    }
    return text;
  }

  sentencepiece::SentencePieceProcessor processor_;
  std::optional<UnigramSearch> search_;
  std::vector<int32_t> byte_ids_;  // by byte; empty if the model has none
  bool cuts_ = false;
  std::string name_ends_;  // the last bytes of the names of special tokens
  NamedTokens named_;
};

}  // namespace

std::shared_ptr<Tokenizer> sentence_piece_tokenizer(const std::string& name, std::string content) {
  return std::make_shared<SentencePieceTokenizer>(name, std::move(content));
}

}  // namespace dltrain
