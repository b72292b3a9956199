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

// Ids that wait in the folder until they are written.
inline constexpr const char *kTrainIds = ".train.ids", *kEvalIds = ".eval.ids";

struct PrepareTokensOptions {
  std::filesystem::path folder = {};
  int64_t shard_tokens = int64_t{100'000'000};  // in a file
};

// Before the tokens are made: refuses (Error(usage)) a folder with .bin files of these names that
// are not ours, or that are and `overwrite` does not say to replace, which it does only where
// nothing in the folder is foreign (base/owned_files.h). Makes the folder.
void open_tokens_folder(const std::filesystem::path& folder, bool overwrite);

// Writes train_000000.bin, …, eval_000000.bin, …, the tokenizer's files, and last tokens.json,
// which says that all is there; returns the number of .bin files. What an earlier
// preparation left in the folder is removed first. Throws Error(data) where the splits
// have different tokenizers, Error(storage).
// `options.folder` is one that open_tokens_folder() has opened.
int prepare_tokens(const TokenSpan& train, const TokenSpan& eval,
                   const PrepareTokensOptions& options);

}  // namespace dltrain
