// One function for each format of tokenizer files; load_tokenizer() chooses among them. All throw
// Error(data) at the place `name`.
#pragma once

#include <memory>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "text/tokenizer.h"

namespace dltrain {

// A tokenizer.json: dltrain's own (char, byte), which has the key `format`, or Hugging Face's.
std::shared_ptr<Tokenizer> tokenizer_from_json(const std::string& name, std::string content);

// Hugging Face's tokenizer.json with byte-level BPE; `root` is the parsed content.
std::shared_ptr<Tokenizer> bpe_from_json(const std::string& name, std::string content,
                                         const nlohmann::json& root);

// GPT-2's vocab.json (texts to ids) and merges.txt (one pair per line, after a line "#version: …").
// Tokens that are neither a byte nor the result of a merge are special.
std::shared_ptr<Tokenizer> bpe_from_vocabulary(const std::string& vocab_name,
                                               const std::string& vocab,
                                               const std::string& merges_name,
                                               const std::string& merges);

// BERT's vocab.txt; `config` is its tokenizer_config.json or empty.
std::shared_ptr<Tokenizer> word_piece_from_vocabulary(const std::string& name, std::string vocab,
                                                      std::string config);
// Hugging Face's tokenizer.json with WordPiece; `root` is the parsed content.
std::shared_ptr<Tokenizer> word_piece_from_json(const std::string& name, std::string content,
                                                const nlohmann::json& root);

// A SentencePiece .model.
std::shared_ptr<Tokenizer> sentence_piece_tokenizer(const std::string& name, std::string content);

// Parts of Hugging Face's tokenizer.json: a special token of added_tokens, the type ByteLevel, and
// the file of a BPE model without its `vocab` and `merges`.
nlohmann::ordered_json special_token_json(int64_t id, const std::string& content);
nlohmann::ordered_json byte_level_json(bool trim_offsets, bool use_regex);
nlohmann::ordered_json bpe_json(const nlohmann::ordered_json& added_tokens,
                                const nlohmann::ordered_json& pre_tokenizer,
                                const nlohmann::ordered_json& post_processor,
                                const nlohmann::ordered_json& decoder);

// Throws Error(data) if the text is not a JSON object.
nlohmann::json parse_json_object(const std::string& name, const std::string& content);

inline constexpr const char* kTokenizerFormat = "dltrain.tokenizer";

}  // namespace dltrain
