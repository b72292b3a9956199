#include "text/sentence_piece_model.h"

#include <algorithm>
#include <bit>
#include <limits>

#include <nlohmann/json.hpp>

#include "base/encodings.h"
#include "base/error.h"
#include "base/json.h"
#include "text/formats.h"

namespace dltrain {
namespace {

// Reads a protocol buffer message field by field.
class Message {
 public:
  Message(const std::string& name, std::string_view bytes) : name_(name), bytes_(bytes) {}

  struct Field {
    uint64_t number = 0, integer = 0;  // integer: also the bits of a float
    std::string_view bytes;
  };
  bool next(Field& field) {
    if (at_ == bytes_.size()) return false;
    const uint64_t key = varint();
    field = {.number = key >> 3, .integer = 0, .bytes = {}};
    switch (key & 7) {
      case 0:
        field.integer = varint();
        break;
      case 1:
        take(8);
        break;
      case 2:
        field.bytes = take(varint());
        break;
      case 5:
        field.integer = fixed32();
        break;
      default:
        broken();
    }
    return true;
  }

 private:
  [[noreturn]] void broken() const {
    throw Error(ExitCode::data, "is not a readable SentencePiece model", name_);
  }
  std::string_view take(uint64_t count) {
    if (count > bytes_.size() - at_) broken();
    at_ += static_cast<size_t>(count);
    return bytes_.substr(at_ - static_cast<size_t>(count), static_cast<size_t>(count));
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    broken();
  }
  uint64_t fixed32() {
    uint64_t value = 0;
    const std::string_view four = take(4);
    for (size_t i = 0; i < 4; ++i) {
      value |= uint64_t{static_cast<unsigned char>(four[i])} << (8 * i);
    }
    return value;
  }

  const std::string& name_;
  std::string_view bytes_;
  size_t at_ = 0;
};

SentencePieceModel::Piece read_piece(Message message) {
  SentencePieceModel::Piece piece;
  for (Message::Field field; message.next(field);) {
    if (field.number == 1) piece.text = std::string(field.bytes);
    if (field.number == 2) {
      piece.score = std::bit_cast<float>(static_cast<uint32_t>(field.integer));
    }
    if (field.number == 3) piece.type = static_cast<SentencePieceModel::Type>(field.integer);
  }
  return piece;
}

using nlohmann::ordered_json;
using Type = SentencePieceModel::Type;

constexpr const char* kSpace = "\xE2\x96\x81";

ordered_json replace(const ordered_json& pattern, const char* by) {
  return {{"type", "Replace"}, {"pattern", pattern}, {"content", by}};
}

ordered_json normalizer(const SentencePieceModel& model) {
  ordered_json steps = ordered_json::array();
  if (!model.charsmap.empty()) {
    steps.push_back({{"type", "Precompiled"}, {"precompiled_charsmap", base64(model.charsmap)}});
  }
  if (model.joins_spaces) {
    steps.push_back(replace({{"Regex", R"(\A +| +\z)"}}, ""));  // spaces alone, no line breaks
    steps.push_back(replace({{"Regex", " {2,}"}}, " "));
  }
  if (model.space_in_front) steps.push_back({{"type", "Prepend"}, {"prepend", kSpace}});
  steps.push_back(replace({{"String", " "}}, kSpace));
  return {{"type", "Sequence"}, {"normalizers", steps}};
}

ordered_json decoder(const SentencePieceModel& model) {
  ordered_json steps = ordered_json::array(
      {replace({{"String", kSpace}}, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}});
  if (model.space_in_front) {
    steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  return {{"type", "Sequence"}, {"decoders", steps}};
}

ordered_json vocabulary(const SentencePieceModel& model) {
  const std::vector<double> scores = search_scores(model);
  ordered_json out = ordered_json::array();
  for (size_t id = 0; id < scores.size(); ++id) {
    out.push_back({model.pieces[id].text, scores[id]});
  }
  return out;
}

}  // namespace

SentencePieceModel read_sentence_piece_model(const std::string& name, std::string_view content) {
  SentencePieceModel model;
  Message whole(name, content);
  for (Message::Field field; whole.next(field);) {
    Message inner(name, field.bytes);
    if (field.number == 1) model.pieces.push_back(read_piece(inner));
    for (Message::Field part; field.number == 2 && inner.next(part);) {  // TrainerSpec
      if (part.number == 3) model.kind = static_cast<SentencePieceModel::Kind>(part.integer);
      if (part.number == 24) model.space_after_words = part.integer != 0;
    }
    for (Message::Field part; field.number == 3 && inner.next(part);) {  // NormalizerSpec
      if (part.number == 2) model.charsmap = std::string(part.bytes);
      if (part.number == 3) model.space_in_front = part.integer != 0;
      if (part.number == 4) model.joins_spaces = part.integer != 0;
      if (part.number == 5) model.spaces_are_u2581 = part.integer != 0;
    }
  }
  return model;
}

bool has_separate_words(const SentencePieceModel& model) {
  const std::string_view space = kSpace;
  return std::ranges::none_of(model.pieces, [&](const SentencePieceModel::Piece& piece) {
    const std::string_view text = piece.text;
    for (size_t at = text.find(space, 1); at != text.npos; at = text.find(space, at + 1)) {
      if (!text.substr(0, at).ends_with(space)) return true;
    }
    return text.find(' ') != text.npos;
  });
}

std::vector<double> search_scores(const SentencePieceModel& model) {
  // The library begins with this, so it is the greatest: scores are logarithms.
  float least = 0, most = std::numeric_limits<float>::min();
  for (const auto& piece : model.pieces) {
    if (piece.type != Type::normal) continue;
    least = std::min(least, piece.score);
    most = std::max(most, piece.score);
  }
  std::vector<double> out;
  for (const auto& piece : model.pieces) {
    double score = piece.score;
    if (piece.type == Type::user_defined) {
      score = static_cast<double>(piece.text.size()) * most - 0.1;
    } else if (piece.type == Type::byte || piece.type == Type::unused) {
      score = least;
    }
    out.push_back(score);
  }
  return out;
}

std::string unigram_json(const SentencePieceModel& model) {
  if (model.kind != SentencePieceModel::Kind::unigram || model.space_after_words ||
      !model.spaces_are_u2581) {
    return {};
  }
  ordered_json added = ordered_json::array(), unknown = nullptr;
  bool bytes = false;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const auto& piece = model.pieces[id];
    bytes = bytes || piece.type == Type::byte;
    if (piece.type == Type::unknown) unknown = id;
    if (piece.type == Type::unknown || piece.type == Type::control) {
      added.push_back(special_token_json(static_cast<int32_t>(id), piece.text));
    }
  }
  return json_text(ordered_json{{"version", "1.0"},
                                {"truncation", nullptr},
                                {"padding", nullptr},
                                {"added_tokens", added},
                                {"normalizer", normalizer(model)},
                                {"pre_tokenizer", nullptr},
                                {"post_processor", nullptr},
                                {"decoder", decoder(model)},
                                {"model",
                                 {{"type", "Unigram"},
                                  {"unk_id", unknown},
                                  {"vocab", vocabulary(model)},
                                  {"byte_fallback", bytes}}}});
}

}  // namespace dltrain
