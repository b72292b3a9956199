// WordPiece tokenizers from files: BERT's vocab.txt (one token per line, the id is the line number)
// with the flags of its tokenizer_config.json, and Hugging Face's tokenizer.json.
#include "text/formats.h"
#include "text/json_fields.h"
#include "text/word_piece.h"

namespace dltrain {
namespace {

using nlohmann::json;

void put_token(const JsonFields& in, WordPieceParts& parts, const std::string& token,
               const json& id) {
  const auto at = static_cast<size_t>(in.id(id, token));
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
    const JsonFields in(name);
    const json root = parse_json_object(name, config);
    parts.lowercase = in.flag(root, "do_lower_case", true);
    parts.strip_accents = in.flag(root, "strip_accents", parts.lowercase);
    parts.chinese = in.flag(root, "tokenize_chinese_chars", true);
    parts.files.push_back({"tokenizer_config.json", std::move(config)});
  }
  return word_piece_tokenizer(name, std::move(parts));
}

std::shared_ptr<const Tokenizer> word_piece_from_json(const std::string& name, std::string content,
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
  return word_piece_tokenizer(name, std::move(parts));
}

}  // namespace dltrain
