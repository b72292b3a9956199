// sentence_piece_tokenizer: SentencePiece models (unigram and BPE), run by the library of that
// name.
//
// A text is encoded by one call of the library, because the library treats the begin of a text
// differently. Large texts should therefore be split into several files or JSON Lines. Most models
// normalize line breaks to spaces.
//
// For unigram models the library only normalizes the text; UnigramSearch finds the pieces.
#include <optional>

#include <sentencepiece_processor.h>

#include "base/utf8.h"
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
    std::vector<NamedTokens::Token> named;
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      const std::string& piece = processor_.IdToPiece(id);
      bytes_.push_back(bytes_of_piece(id, piece));
      is_special_.push_back(processor_.IsControl(id) || processor_.IsUnknown(id));
      // User-defined pieces are text, but some names have a meaning ("<mask>").
      record_special_token(special_, piece, id);
      if (processor_.IsControl(id) && !piece.empty()) named.push_back({piece, id});
      if (processor_.IsByte(id)) {
        byte_ids_.resize(256);
        byte_ids_[static_cast<unsigned char>(bytes_.back()[0])] = id;
      }
    }
    note(processor_.bos_id(), special_.begin_of_text);
    note(processor_.eos_id(), special_.end_of_text);
    note(processor_.pad_id(), special_.padding);
    note(processor_.unk_id(), special_.unknown);
    named_ = NamedTokens(std::move(named));
  }

  std::string_view kind() const override { return "sentencepiece"; }
  bool drops_first_space() const override { return true; }
  size_t cut(std::string_view, size_t) const override { return 0; }
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
  NamedTokens named_;
};

}  // namespace

std::shared_ptr<Tokenizer> sentence_piece_tokenizer(const std::string& name, std::string content) {
  return std::make_shared<SentencePieceTokenizer>(name, std::move(content));
}

}  // namespace dltrain
