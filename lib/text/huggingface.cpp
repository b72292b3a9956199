#include "text/huggingface.h"

#include <nlohmann/json.hpp>

#include "text/byte_level.h"
#include "text/formats.h"
#include "text/sentence_piece_model.h"

namespace dltrain {
namespace {

using nlohmann::ordered_json;

// One token a character or a byte, as byte-pair encoding that merges nothing.
std::string without_merges(const Tokenizer& tokenizer) {
  const bool bytes = tokenizer.kind() == "byte";
  ordered_json vocabulary = ordered_json::object(), added = ordered_json::array();
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string text(tokenizer.bytes_of(id));
    const bool special = tokenizer.is_special(id);
    vocabulary[bytes && !special ? written_in_alphabet(text) : text] = id;
    if (!special) continue;
    added.push_back(special_token_json(id, text));
  }
  const ordered_json byte_level{{"type", "ByteLevel"},
                                {"add_prefix_space", false},
                                {"trim_offsets", true},
                                {"use_regex", false}};
  return ordered_json{{"version", "1.0"},
                      {"truncation", nullptr},
                      {"padding", nullptr},
                      {"added_tokens", added},
                      {"normalizer", nullptr},
                      {"pre_tokenizer", bytes ? byte_level : ordered_json(nullptr)},
                      {"post_processor", nullptr},
                      {"decoder", bytes ? byte_level : ordered_json{{"type", "Fuse"}}},
                      {"model",
                       {{"type", "BPE"},
                        {"dropout", nullptr},
                        {"unk_token", nullptr},
                        {"continuing_subword_prefix", nullptr},
                        {"end_of_word_suffix", nullptr},
                        {"fuse_unk", false},
                        {"byte_fallback", false},
                        {"ignore_merges", false},
                        {"vocab", vocabulary},
                        {"merges", ordered_json::array()}}}}
      .dump();
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
  // transformers takes a tokenizer.model alone for byte-pair encoding.
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
    // WordPiece decodes its tokens with a space in front.
    if (id) config[key] = std::string(tokenizer.bytes_of(*id).substr(bert ? 1 : 0));
  };
  name(bert ? "cls_token" : "bos_token", special.begin_of_text);
  name(bert ? "sep_token" : "eos_token", special.end_of_text);
  name("pad_token", special.padding);
  name("mask_token", special.mask);
  // SentencePiece's name of the unknown token is not what it decodes to.
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
