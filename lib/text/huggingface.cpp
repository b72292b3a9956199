#include "text/huggingface.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "text/byte_level.h"
#include "text/formats.h"
#include "text/sentence_piece_model.h"
#include "text/special_tokens.h"

namespace dltrain {
namespace {

using nlohmann::ordered_json;

// A tokenizer of characters or bytes as byte-pair encoding without merges.
std::string without_merges(const Tokenizer& tokenizer) {
  const bool bytes = tokenizer.kind() == "byte";
  ordered_json vocabulary = ordered_json::object(), added = ordered_json::array();
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string text(tokenizer.bytes_of(id));
    const bool special = tokenizer.is_special(id);
    vocabulary[bytes && !special ? written_in_alphabet(text) : text] = id;
    if (special) added.push_back(special_token_json(id, text));
  }
  const ordered_json pieces = bytes ? byte_level_json(true, false) : ordered_json(nullptr);
  ordered_json file =
      bpe_json(added, pieces, nullptr, bytes ? pieces : ordered_json{{"type", "Fuse"}});
  file["model"]["ignore_merges"] = false;
  file["model"]["vocab"] = vocabulary;
  file["model"]["merges"] = ordered_json::array();
  return json_text(file);
}

const char* class_of(const std::vector<TokenizerFile>& files) {
  const std::string& file = files.front().name;
  if (file == "tokenizer.model") return "LlamaTokenizer";
  return file == "vocab.txt" ? "BertTokenizer" : "PreTrainedTokenizerFast";
}

// Returns the post-processor that puts the begin and the end of a text around texts.
ordered_json around_texts(const Tokenizer& tokenizer) {
  const SpecialTokens& special = tokenizer.special();
  ordered_json tokens = ordered_json::object(), single = ordered_json::array();
  const auto add = [&](ordered_json& list, const std::optional<int32_t>& id, int type) {
    if (!id) return;
    const std::string name(name_of_token(tokenizer, *id));
    list.push_back({{"SpecialToken", {{"id", name}, {"type_id", type}}}});
    tokens[name] = {
        {"id", name}, {"ids", ordered_json::array({*id})}, {"tokens", ordered_json::array({name})}};
  };
  add(single, special.begin_of_text, 0);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  add(single, special.end_of_text, 0);
  ordered_json pair = single;
  pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
  add(pair, special.end_of_text, 1);
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", pair},
          {"special_tokens", tokens}};
}

}  // namespace

std::vector<TokenizerFile> huggingface_tokenizer(const Tokenizer& tokenizer, int64_t max_length) {
  std::vector<TokenizerFile> files = tokenizer.files();
  if (tokenizer.kind() == "char" || tokenizer.kind() == "byte") {
    files = {{"tokenizer.json", without_merges(tokenizer)}};
  }
  // transformers reads a tokenizer.model without a tokenizer.json as byte-pair encoding.
  if (tokenizer.kind() == "sentencepiece") {
    std::string unigram =
        unigram_json(read_sentence_piece_model(files.front().name, files.front().content));
    if (!unigram.empty()) files.insert(files.begin(), {"tokenizer.json", std::move(unigram)});
  }
  for (const TokenizerFile& file : files) {
    if (file.name == "tokenizer_config.json") return files;
  }
  ordered_json config{{"tokenizer_class", class_of(files)},
                      {"model_max_length", max_length},
                      {"clean_up_tokenization_spaces", false}};
  const SpecialTokens& special = tokenizer.special();
  const bool bert = tokenizer.kind() == "wordpiece";
  const auto name = [&](const char* key, const std::optional<int32_t>& id) {
    if (id) config[key] = std::string(name_of_token(tokenizer, *id));
  };
  name(bert ? "cls_token" : "bos_token", special.begin_of_text);
  name(bert ? "sep_token" : "eos_token", special.end_of_text);
  name("pad_token", special.padding);
  name("mask_token", special.mask);
  // SentencePiece decodes the unknown token to another text than its name.
  if (tokenizer.kind() == "sentencepiece") {
    config["add_bos_token"] = false;
    config["add_eos_token"] = false;
  } else {
    name("unk_token", special.unknown);
  }
  files.push_back({"tokenizer_config.json", json_text(config, 2) + "\n"});
  return files;
}

void change_json(std::vector<TokenizerFile>& files, std::string_view name,
                 const std::function<void(ordered_json&)>& change) {
  const auto file = std::ranges::find(files, name, &TokenizerFile::name);
  if (file == files.end()) return;
  auto json = try_parse_ordered_json(file->content);
  if (!json.is_object()) return;
  change(json);
  file->content = json_text(json, 2) + "\n";
}

void put_around_texts(const Tokenizer& tokenizer, std::vector<TokenizerFile>& files) {
  if (tokenizer.kind() == "wordpiece") return;  // its files have [CLS] and [SEP]
  const SpecialTokens& special = tokenizer.special();
  const auto padding = special.padding ? special.padding : special.end_of_text;
  change_json(files, "tokenizer.json",
              [&](ordered_json& json) { json["post_processor"] = around_texts(tokenizer); });
  change_json(files, "tokenizer_config.json", [&](ordered_json& json) {
    json["add_bos_token"] = special.begin_of_text.has_value();
    json["add_eos_token"] = special.end_of_text.has_value();
    json["padding_side"] = "right";
    if (padding) json["pad_token"] = std::string(name_of_token(tokenizer, *padding));
  });
}

}  // namespace dltrain
