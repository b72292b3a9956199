#include "data/prepare_tokens.h"

#include <algorithm>

#include "base/file.h"
#include "data/token_files.h"

namespace dltrain {
namespace {

// Returns how many files.
int write_split(const TokenSpan& span, const char* split, int width,
                const PrepareTokensOptions& options) {
  int files = 0;
  std::vector<uint16_t> narrow;
  const int64_t end = span.first + span.count;
  for (int64_t at = span.first; at < end; at += options.shard_tokens, ++files) {
    const int64_t tokens = std::min(options.shard_tokens, end - at);
    FileWriter file(options.folder / fmt::format("{}_{:06}.bin", split, files));
    file.write(token_file_header(tokens, width));
    span.stream->for_each(at, tokens, [&](std::span<const int32_t> ids) {
      if (width == 4) return file.write(std::as_bytes(ids));
      narrow.assign(ids.begin(), ids.end());
      file.write(std::as_bytes(std::span<const uint16_t>(narrow)));
    });
    file.sync();
    file.close();
  }
  return files;
}

// Files of an earlier preparation, which `train_*.bin` would read too. Those that are mapped stay
// readable.
void remove_shards(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> old;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    for (const std::string_view split : {"train_", "eval_"}) {
      if (!name.starts_with(split) || !name.ends_with(".bin")) continue;
      const std::string_view number =
          std::string_view(name).substr(split.size(), name.size() - split.size() - 4);
      const bool digits = number.find_first_not_of("0123456789") == std::string_view::npos;
      if (number.size() >= 6 && digits) old.push_back(entry.path());
    }
  }
  for (const auto& path : old) remove_recursively(path);
}

std::string identity_of(const TokenStream& stream) {
  return stream.tokenizer() ? stream.tokenizer()->identity() : std::string();
}

}  // namespace

int prepare_tokens(const TokenSpan& train, const TokenSpan& eval,
                   const PrepareTokensOptions& options) {
  const TokensAbout about{train.stream->vocab_size(), identity_of(*train.stream)};
  if (eval.count > 0 && identity_of(*eval.stream) != about.tokenizer) {
    fail(ExitCode::data, "data.train and data.eval have different tokenizers");
  }
  make_directories(options.folder);
  remove_recursively(options.folder / kTokensFile);
  remove_shards(options.folder);
  const int width = about.vocab_size > 65536 ? 4 : 2;
  const int files =
      write_split(train, "train", width, options) + write_split(eval, "eval", width, options);
  if (const auto& tokenizer = train.stream->tokenizer()) {
    save_tokenizer(*tokenizer, options.folder);
  }
  write_file_atomically(options.folder / kTokensFile,
                        tokens_about_to_json(about, train.count, eval.count));
  return files;
}

}  // namespace dltrain
