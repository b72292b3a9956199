// Writing token streams into .bin files (data/token_files.h) with their tokenizer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "data/token_stream.h"

namespace dltrain {

// The ids that one split gets; none where `count` is 0.
struct TokenSpan {
  std::shared_ptr<const TokenStream> stream;
  int64_t first = 0, count = 0;
};

struct PrepareTokensOptions {
  std::filesystem::path folder = {};
  int64_t shard_tokens = int64_t{100'000'000};  // in a file
};

// Writes train_000000.bin, …, eval_000000.bin, …, the tokenizer's files, and last tokens.json,
// which says that all is there; returns the number of .bin files. Files of these names that an
// earlier preparation left in the folder are removed first. Throws Error(data) where the splits
// have different tokenizers, Error(storage).
int prepare_tokens(const TokenSpan& train, const TokenSpan& eval,
                   const PrepareTokensOptions& options);

}  // namespace dltrain
