// Files of token ids (.bin), mapped into memory: they may be larger than it.
//
// Layouts:
//   raw      ids of 16 or 32 bits and nothing else, as nanoGPT writes them
//   header   256 i32, then the ids: magic, version, number of ids; the rest is 0. As llm.c writes
//            them: magic 20240520, version 1, 16 bits an id; magic 20240801, version 7, 32 bits.
// A folder of `dltrain data prepare` also has tokens.json and the tokenizer (docs/formats.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/token_stream.h"

namespace dltrain {

enum class TokenLayout : uint8_t { automatic, raw16, raw32, header };

inline constexpr size_t kTokenHeaderBytes = 1024;
inline constexpr int64_t kMaxVocabulary = int64_t{1} << 31;

// The ids within the bytes of one file. `automatic`: with a header where there is one, else 16
// bits. Throws Error(data) with the place `name`.
TokenSegment parse_token_file(const std::string& name, std::span<const std::byte> bytes,
                              TokenLayout layout);

// The header of a file of so many ids of `width` bytes.
std::vector<std::byte> token_file_header(int64_t tokens, int width);

// tokens.json of a folder.
struct TokensAbout {
  int64_t vocab_size = 0;
  std::string tokenizer;  // Tokenizer::identity(); empty: unknown
};
inline constexpr const char* kTokensFile = "tokens.json";
std::string tokens_about_to_json(const TokensAbout& about, int64_t train, int64_t eval);
TokensAbout parse_tokens_about(const std::string& name, const std::string& content);

struct TokenFilesOptions {
  std::vector<std::string> files;
  TokenLayout layout = TokenLayout::automatic;
  int64_t vocab_size = 0;                      // 0: what tokens.json beside the files says
  std::shared_ptr<const Tokenizer> tokenizer;  // null: that beside the files, if there is one
};

// Opens the files as one stream. Where nothing says the size of the vocabulary all ids are read for
// it; where something does, ids are checked at once in files of together at most 256 MiB, and in
// larger ones when they are used. Throws Error(data), also where the tokenizer is not the one that
// made the files.
std::shared_ptr<const TokenStream> open_token_files(const TokenFilesOptions& options);

}  // namespace dltrain
