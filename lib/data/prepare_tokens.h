// Writes token streams to .bin files (data/token_files.h) with their tokenizer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "data/token_stream.h"

namespace dltrain {

// The ids of one split; `count` may be 0.
struct TokenSpan {
  std::shared_ptr<const TokenStream> stream;
  int64_t first = 0, count = 0;
};

// Temporary files of ids in the folder.
inline constexpr const char *kTrainIds = ".train.ids", *kEvalIds = ".eval.ids";

struct PrepareTokensOptions {
  std::filesystem::path folder = {};
  int64_t shard_tokens = int64_t{100'000'000};  // in a file
};

// Creates the folder, or checks an existing one. Throws Error(usage) if it has .bin files of these
// names that dltrain did not write, or that it wrote unless `overwrite` is set; with `overwrite`,
// also if the folder has any foreign file (base/owned_files.h).
void open_tokens_folder(const std::filesystem::path& folder, bool overwrite);

// Writes train_000000.bin, …, eval_000000.bin, …, the files of the tokenizer, and finally
// tokens.json; returns the number of .bin files. Removes the files of an earlier preparation first.
// Call open_tokens_folder() before. Throws Error(data) if the splits have different tokenizers, and
// Error(storage).
int prepare_tokens(const TokenSpan& train, const TokenSpan& eval,
                   const PrepareTokensOptions& options);

}  // namespace dltrain
