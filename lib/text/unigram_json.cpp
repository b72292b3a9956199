// Converts unigram SentencePiece models to tokenizer.json. Differs in two points from transformers'
// own converter, which gives other ids there: leading and repeated spaces are kept where the model
// keeps them (a normalizer instead of the pre-tokenizer Metaspace), and user-defined tokens are
// found with the others, as the library does, so that no space is added after them.
#include <algorithm>

#include <nlohmann/json.hpp>

#include "text/formats.h"
#include "text/sentence_piece_model.h"

namespace dltrain {
namespace {

using nlohmann::ordered_json;
using Type = SentencePieceModel::Type;

constexpr const char* kSpace = "\xE2\x96\x81";

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - at);
    uint32_t three = 0;
    for (size_t i = 0; i < 3; ++i) {
      three = three << 8 | (i < count ? static_cast<unsigned char>(bytes[at + i]) : 0u);
    }
    for (size_t i = 0; i < 4; ++i) {
      out += i <= count ? kDigits[three >> (18 - 6 * i) & 63] : '=';
    }
  }
  return out;
}

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

// Uses the scores of the library's search: a user-defined token beats any other segmentation of its
// bytes; bytes and unused tokens get the lowest score.
ordered_json vocabulary(const SentencePieceModel& model) {
  float least = 0, most = -1e30f;
  for (const auto& piece : model.pieces) {
    if (piece.type != Type::normal) continue;
    least = std::min(least, piece.score);
    most = std::max(most, piece.score);
  }
  ordered_json out = ordered_json::array();
  for (const auto& piece : model.pieces) {
    double score = piece.score;
    if (piece.type == Type::user_defined) {
      score = static_cast<double>(piece.text.size()) * most - 0.1;
    } else if (piece.type == Type::byte || piece.type == Type::unused) {
      score = least;
    }
    out.push_back({piece.text, score});
  }
  return out;
}

}  // namespace

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
  return ordered_json{{"version", "1.0"},
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
                        {"byte_fallback", bytes}}}}
      .dump();
}

}  // namespace dltrain
