// A tokenizer's files as transformers' AutoTokenizer reads them.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "text/tokenizer.h"

namespace dltrain {

// Returns the tokenizer's own files and a tokenizer_config.json with their class and the special
// tokens. `char` and `byte` become a tokenizer.json of byte-pair encoding without merges; a unigram
// SentencePiece model gets an additional tokenizer.json. Both give the same ids. `max_length` is
// the longest sequence that the model accepts.
std::vector<TokenizerFile> huggingface_tokenizer(const Tokenizer& tokenizer, int64_t max_length);

// Changes the file of this name if there is one and it is a JSON object.
void change_json(std::vector<TokenizerFile>& files, std::string_view name,
                 const std::function<void(nlohmann::ordered_json&)>& change);

// Changes the files so that texts stand between begin and end of a text, as in classification. The
// padding is then the end of a text, if the tokenizer has no other.
void put_around_texts(const Tokenizer& tokenizer, std::vector<TokenizerFile>& files);

}  // namespace dltrain
