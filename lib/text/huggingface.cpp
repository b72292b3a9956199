#include "text/huggingface.h"

#include <nlohmann/json.hpp>

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
  return file.dump();
}

const char* class_of(const std::vector<TokenizerFile>& files) {
  const std::string& file = files.front().name;
  if (file == "tokenizer.model") return "LlamaTokenizer";
  return file == "vocab.txt" ? "BertTokenizer" : "PreTrainedTokenizerFast";
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
  files.push_back({"tokenizer_config.json", config.dump(2) + "\n"});
  return files;
}

}  // namespace dltrain
