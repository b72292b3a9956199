#include "data/prepare_tokens.h"

#include <algorithm>

#include "base/file.h"
#include "base/owned_files.h"
#include "data/token_files.h"

namespace dltrain {
namespace {

// Returns the number of files.
int write_split(const TokenSpan& span, const char* split, int width,
                const PrepareTokensOptions& options) {
  int files = 0;
  std::vector<uint16_t> narrow;
  const int64_t end = span.first + span.count;
  for (int64_t at = span.first; at < end; at += options.shard_tokens, ++files) {
    const int64_t tokens = std::min(options.shard_tokens, end - at);
    const std::string name = fmt::format("{}_{:06}.bin", split, files);
    claim_files(options.folder, {name});
    FileWriter file(options.folder / name);
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

// Returns the sorted names of the files in the folder that are named like shards: train_000000.bin.
std::vector<std::string> shards_in(const std::filesystem::path& folder) {
  std::vector<std::string> old;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    std::string name = entry.path().filename().string();
    for (const std::string_view split : {"train_", "eval_"}) {
      if (!name.starts_with(split) || !name.ends_with(".bin")) continue;
      const std::string_view number =
          std::string_view(name).substr(split.size(), name.size() - split.size() - 4);
      const bool digits = number.find_first_not_of("0123456789") == std::string_view::npos;
      if (number.size() < 6 || !digits) continue;
      old.push_back(std::move(name));
      break;
    }
  }
  std::sort(old.begin(), old.end());
  return old;
}

std::string identity_of(const TokenStream& stream) {
  return stream.tokenizer() ? stream.tokenizer()->identity() : std::string();
}

}  // namespace

void open_tokens_folder(const std::filesystem::path& folder, bool overwrite) {
  std::vector<std::string> old = shards_in(folder);
  std::error_code ignored;
  if (std::filesystem::exists(folder / kTokensFile, ignored)) old.push_back(kTokensFile);
  for (const std::string& name : old) {
    if (lists_file(folder, name)) continue;
    fail(ExitCode::usage, "{} was not written by dltrain{}; choose another folder",
         (folder / name).string(), has_marker(folder) ? "" : ", or by an earlier version");
  }
  if (!old.empty() && !overwrite) {
    fail(ExitCode::usage, "{} already exists; --overwrite replaces it",
         (folder / old.front()).string());
  }
  if (!old.empty()) check_all_owned(folder);
  if (!has_marker(folder)) mark_folder(folder);
  claim_files(folder, {kTrainIds, kEvalIds});
}

int prepare_tokens(const TokenSpan& train, const TokenSpan& eval,
                   const PrepareTokensOptions& options) {
  const TokensMetadata metadata{train.stream->vocab_size(), identity_of(*train.stream)};
  if (eval.count > 0 && identity_of(*eval.stream) != metadata.tokenizer) {
    fail(ExitCode::data, "data.train and data.eval have different tokenizers");
  }
  std::vector<std::string> names{kTokensFile};
  if (const auto& tokenizer = train.stream->tokenizer()) {
    for (const TokenizerFile& file : tokenizer->files()) names.push_back(file.name);
  }
  claim_files(options.folder, names);
  // Mapped files stay readable.
  for (const std::string& name : shards_in(options.folder)) {
    if (lists_file(options.folder, name)) remove_recursively(options.folder / name);
  }
  remove_recursively(options.folder / kTokensFile);
  const int width = metadata.vocab_size > 65536 ? 4 : 2;
  const int files =
      write_split(train, "train", width, options) + write_split(eval, "eval", width, options);
  if (const auto& tokenizer = train.stream->tokenizer()) {
    save_tokenizer(*tokenizer, options.folder);
  }
  write_file_atomically(options.folder / kTokensFile,
                        tokens_metadata_to_json(metadata, train.count, eval.count));
  return files;
}

}  // namespace dltrain
