// Files of token ids (.bin), mapped into memory, so that they may be larger than it.
//
// Layouts:
//   raw      ids of 16 or 32 bits, as in nanoGPT
//   header   256 i32 (magic, version, number of ids, zeros), then the ids. As in llm.c, the magic
//            20240520 has version 1 and 16 bits per id, 20240801 has version 7 and 32 bits.
// A folder of `dltrain data prepare` also has tokens.json and the tokenizer (docs/formats.md).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/token_stream.h"

namespace dltrain {

enum class TokenLayout : uint8_t { automatic, raw16, raw32, header };

inline constexpr size_t kTokenHeaderBytes = 1024;
inline constexpr int64_t kMaxVocabulary = int64_t{1} << 31;

// Returns the ids in the bytes of one file. `automatic`: with a header if there is one, otherwise
// 16 bits. Throws Error(data) at the place `name`.
TokenSegment parse_token_file(const std::string& name, std::span<const std::byte> bytes,
                              TokenLayout layout);

// Returns the header of a file with this number of ids of `width` bytes.
std::vector<std::byte> token_file_header(int64_t tokens, int width);

// The content of tokens.json.
struct TokensMetadata {
  int64_t vocab_size = 0;
  std::string tokenizer;  // Tokenizer::identity(); empty: unknown
};
inline constexpr const char* kTokensFile = "tokens.json";
std::string tokens_metadata_to_json(const TokensMetadata& metadata, int64_t train, int64_t eval);
TokensMetadata parse_tokens_metadata(const std::string& name, const std::string& content);

}  // namespace dltrain
