// tokenizer_from_json: recognises the format of a tokenizer.json and reads dltrain's own.
#include "base/json.h"
#include "text/formats.h"
#include "text/json_fields.h"
#include "text/simple_tokenizers.h"

namespace dltrain {
namespace {

std::shared_ptr<Tokenizer> own_format(const std::string& name, const nlohmann::json& root) {
  const JsonFields in(name);
  if (root.value("version", nlohmann::json()) != 1) {
    in.refuse("has an unknown version of the format; version 1 is supported");
  }
  std::vector<std::string> special;
  if (const auto list = root.find("special_tokens"); list != root.end()) {
    if (!list->is_array()) in.refuse("special_tokens is not a list");
    for (const auto& token : *list) {
      if (!token.is_string()) in.refuse("special_tokens has an element that is not a string");
      special.push_back(token.get<std::string>());
    }
  }
  const auto type = root.value("type", nlohmann::json());
  if (type == "byte") return byte_tokenizer(name, special);
  if (type != "char") in.refuse("its type is neither char nor byte");
  const auto alphabet = root.value("alphabet", nlohmann::json());
  if (!alphabet.is_string()) in.refuse("has no alphabet");
  return char_tokenizer(name, alphabet.get<std::string>(), special);
}

// Reads a tokenizer of characters as huggingface_tokenizer() writes it: byte-pair encoding without
// splits and merges. Returns nullptr for any other file.
std::shared_ptr<Tokenizer> characters(const std::string& name, const nlohmann::json& root) {
  const auto part = [](const nlohmann::json& of, const char* key) {
    return of.is_object() ? of.value(key, nlohmann::json()) : nlohmann::json();
  };
  const nlohmann::json model = part(root, "model"), merges = part(model, "merges");
  const nlohmann::json vocabulary = part(model, "vocab"), added = part(root, "added_tokens");
  if (part(model, "type") != "BPE" || !merges.is_array() || !merges.empty() ||
      !vocabulary.is_object() || !part(root, "pre_tokenizer").is_null() ||
      !part(root, "normalizer").is_null()) {
    return nullptr;
  }
  std::vector<std::string> by_id(vocabulary.size());
  for (const auto& [text, id] : vocabulary.items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= by_id.size()) return nullptr;
    by_id[id.get<size_t>()] = text;
  }
  const size_t special = added.is_array() ? added.size() : 0;
  if (special >= by_id.size()) return nullptr;
  const auto texts = by_id.end() - static_cast<std::ptrdiff_t>(special);
  for (size_t i = 0; i < special; ++i) {
    if (part(added[i], "content") != texts[static_cast<std::ptrdiff_t>(i)]) return nullptr;
  }
  std::string alphabet;
  for (auto character = by_id.begin(); character != texts; ++character) alphabet += *character;
  auto made = char_tokenizer(name, alphabet, {texts, by_id.end()});
  return made->vocab_size() == static_cast<int64_t>(by_id.size()) ? made : nullptr;
}

}  // namespace

nlohmann::ordered_json special_token_json(int64_t id, const std::string& content) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

nlohmann::ordered_json byte_level_json(bool trim_offsets, bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", trim_offsets},
          {"use_regex", use_regex}};
}

nlohmann::ordered_json bpe_json(const nlohmann::ordered_json& added_tokens,
                                const nlohmann::ordered_json& pre_tokenizer,
                                const nlohmann::ordered_json& post_processor,
                                const nlohmann::ordered_json& decoder) {
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added_tokens},
          {"normalizer", nullptr},
          {"pre_tokenizer", pre_tokenizer},
          {"post_processor", post_processor},
          {"decoder", decoder},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false}}}};
}

nlohmann::json parse_json_object(const std::string& name, const std::string& content) {
  nlohmann::json root;
  try {
    root = parse_json(content);
  } catch (const nlohmann::json::exception& error) {
    throw Error(ExitCode::data, "is not JSON: " + json_error(error.what()), name);
  }
  if (!root.is_object()) throw Error(ExitCode::data, "is not a JSON object", name);
  return root;
}

std::shared_ptr<Tokenizer> tokenizer_from_json(const std::string& name, std::string content) {
  const nlohmann::json root = parse_json_object(name, content);
  const auto format = root.find("format");
  if (format != root.end() && *format == kTokenizerFormat) return own_format(name, root);
  const auto model = root.find("model");
  if (model != root.end() && model->is_object() && model->contains("type") &&
      (*model)["type"] == "WordPiece") {
    return word_piece_from_json(name, std::move(content), root);
  }
  if (auto made = characters(name, root)) return made;
  if (model != root.end()) return bpe_from_json(name, std::move(content), root);
  throw Error(ExitCode::data, "is not a tokenizer of a known format", name);
}

}  // namespace dltrain
