// libFuzzer entry: any bytes as a file of token ids, or as a tokens.json. Allowed: ids below the
// vocabulary size, or Error(data).
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "data/token_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dltrain;
  if (size == 0) return 0;
  // The first byte chooses the layout.
  const auto layout = static_cast<TokenLayout>(data[0] & 3);
  const auto bytes = std::as_bytes(std::span(data + 1, size - 1));
  try {
    if (data[0] & 4) {
      const auto metadata = parse_tokens_metadata(
          "fuzz", std::string(reinterpret_cast<const char*>(data + 1), size - 1));
      if (metadata.vocab_size < 1 || metadata.vocab_size > kMaxVocabulary) std::abort();
      return 0;
    }
    const TokenSegment segment = parse_token_file("fuzz", bytes, layout);
    const TokenStream stream({segment}, {.vocab_size = data[0] & 8 ? 1000 : 0}, nullptr);
    stream.for_each(0, stream.size(), [&](std::span<const int32_t> ids) {
      for (const int32_t id : ids) {
        if (id < 0 || id >= stream.vocab_size()) std::abort();
      }
    });
  } catch (const Error& error) {
    if (error.code() != ExitCode::data) std::abort();
  }
  return 0;
}
