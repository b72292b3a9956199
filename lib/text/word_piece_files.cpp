// WordPiece tokenizers of files: BERT's vocab.txt (a token a line, its number is the id) with the
// flags of a tokenizer_config.json beside it, and Hugging Face's tokenizer.json.
#include <nlohmann/json.hpp>

#include "text/formats.h"
#include "text/word_piece.h"

namespace dltrain {
namespace {

using nlohmann::json;

constexpr int64_t kMaxId = 1 << 21;

[[noreturn]] void refuse(const std::string& name, const std::string& message) {
  throw Error(ExitCode::data, message, name);
}

// A flag of an object; null counts as absent.
bool flag(const std::string& name, const json& owner, const char* key, bool absent) {
  const auto found = owner.find(key);
  if (found == owner.end() || found->is_null()) return absent;
  if (!found->is_boolean()) refuse(name, fmt::format("{} is neither true nor false", key));
  return found->get<bool>();
}

std::string text(const std::string& name, const json& owner, const char* key,
                 const std::string& absent) {
  const auto found = owner.find(key);
  if (found == owner.end() || found->is_null()) return absent;
  if (!found->is_string()) refuse(name, fmt::format("{} is no text", key));
  return found->get<std::string>();
}

const json& object(const std::string& name, const json& owner, const char* key) {
  const auto found = owner.find(key);
  if (found == owner.end() || !found->is_object()) refuse(name, fmt::format("has no {}", key));
  return *found;
}

void put_token(const std::string& name, WordPieceParts& parts, const std::string& token,
               const json& id) {
  if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= kMaxId) {
    refuse(name, fmt::format("gives the token '{}' no possible id", token));
  }
  const auto at = static_cast<size_t>(id.get<int64_t>());
  if (at >= parts.tokens.size()) parts.tokens.resize(at + 1);
  parts.tokens[at] = token;
}

}  // namespace

std::shared_ptr<const Tokenizer> word_piece_from_vocabulary(const std::string& name,
                                                            std::string vocab, std::string config) {
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
    const json about = parse_json_object(name, config);
    parts.lowercase = flag(name, about, "do_lower_case", true);
    parts.strip_accents = flag(name, about, "strip_accents", parts.lowercase);
    parts.chinese = flag(name, about, "tokenize_chinese_chars", true);
    parts.files.push_back({"tokenizer_config.json", std::move(config)});
  }
  return word_piece_tokenizer(name, std::move(parts));
}

std::shared_ptr<const Tokenizer> word_piece_from_json(const std::string& name, std::string content,
                                                      const json& about) {
  WordPieceParts parts;
  const json& model = object(name, about, "model");
  parts.unknown = text(name, model, "unk_token", "[UNK]");
  parts.prefix = text(name, model, "continuing_subword_prefix", "##");
  if (const auto most = model.find("max_input_chars_per_word"); most != model.end()) {
    if (!most->is_number_integer() || most->get<int64_t>() < 1) {
      refuse(name, "max_input_chars_per_word is no whole number");
    }
    parts.max_characters = static_cast<size_t>(most->get<int64_t>());
  }
  const json& normalizer = object(name, about, "normalizer");
  const json& splitter = object(name, about, "pre_tokenizer");
  if (text(name, normalizer, "type", "") != "BertNormalizer" ||
      text(name, splitter, "type", "") != "BertPreTokenizer") {
    refuse(name, "WordPiece is read with a BertNormalizer and a BertPreTokenizer, which it lacks");
  }
  parts.clean_text = flag(name, normalizer, "clean_text", true);
  parts.chinese = flag(name, normalizer, "handle_chinese_chars", true);
  parts.lowercase = flag(name, normalizer, "lowercase", true);
  parts.strip_accents = flag(name, normalizer, "strip_accents", parts.lowercase);
  for (const auto& [token, id] : object(name, model, "vocab").items()) {
    put_token(name, parts, token, id);
  }
  const auto added = about.find("added_tokens");
  if (added != about.end() && added->is_array()) {
    for (const json& one : *added) {
      if (!one.is_object() || !one.contains("id")) refuse(name, "has an added token without an id");
      put_token(name, parts, text(name, one, "content", ""), one["id"]);
      if (flag(name, one, "special", false)) parts.special.push_back(one["id"].get<int32_t>());
    }
  }
  parts.files = {{"tokenizer.json", std::move(content)}};
  return word_piece_tokenizer(name, std::move(parts));
}

}  // namespace dltrain
