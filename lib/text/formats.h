// What load_tokenizer() chooses from: one function for each format of a tokenizer's files. All
// throw Error(data) with `name` as the place of what is wrong.
#pragma once

#include <memory>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "text/tokenizer.h"

namespace dltrain {

// A tokenizer.json: dltrain's own (char, byte), told by its `format`, or Hugging Face's.
std::shared_ptr<const Tokenizer> tokenizer_from_json(const std::string& name, std::string content);

// Hugging Face's tokenizer.json with byte-level BPE; `about` is its content, parsed.
std::shared_ptr<const Tokenizer> bpe_from_json(const std::string& name, std::string content,
                                               const nlohmann::json& about);

// GPT-2's vocab.json (texts to ids) and merges.txt (a pair a line, after a line "#version: …").
// Tokens that no merge gives and that are no byte are special.
std::shared_ptr<const Tokenizer> bpe_from_vocabulary(const std::string& vocab_name,
                                                     const std::string& vocab,
                                                     const std::string& merges_name,
                                                     const std::string& merges);

// BERT's vocab.txt; `config`: the tokenizer_config.json beside it, or nothing.
std::shared_ptr<const Tokenizer> word_piece_from_vocabulary(const std::string& name,
                                                            std::string vocab, std::string config);
// Hugging Face's tokenizer.json with WordPiece; `about` is its content, parsed.
std::shared_ptr<const Tokenizer> word_piece_from_json(const std::string& name, std::string content,
                                                      const nlohmann::json& about);

// A SentencePiece .model.
std::shared_ptr<const Tokenizer> sentence_piece_tokenizer(const std::string& name,
                                                          std::string content);

// A special token among the added_tokens of Hugging Face's tokenizer.json.
nlohmann::ordered_json special_token_json(int32_t id, const std::string& content);

// Throws Error(data) for text that is no JSON object.
nlohmann::json parse_json_object(const std::string& name, const std::string& content);

inline constexpr const char* kTokenizerFormat = "dltrain.tokenizer";

}  // namespace dltrain
