// A tokenizer's files as transformers' AutoTokenizer reads them.
#pragma once

#include <vector>

#include "text/tokenizer.h"

namespace dltrain {

// The tokenizer's own files (those of `char` and `byte` become a tokenizer.json of byte-pair
// encoding without merges, a unigram SentencePiece model gets one beside it; both give the same
// ids), and tokenizer_config.json, which names their class and the special tokens. `max_length`:
// the longest sequence that the model takes.
std::vector<TokenizerFile> huggingface_tokenizer(const Tokenizer& tokenizer, int64_t max_length);

}  // namespace dltrain
