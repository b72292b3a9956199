// libFuzzer entry: any bytes as a tokenizer.json, then the same bytes as text for it. Allowed: a
// tokenizer whose ids lie in its vocabulary (and of characters give back the text), or Error(data).
#include "text/tokenizer.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "text/formats.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dltrain;
  const std::string content(reinterpret_cast<const char*>(data), size);
  try {
    const auto tokenizer = tokenizer_from_json("fuzz", content);
    if (tokenizer->vocab_size() < 1) std::abort();
    for (const auto special : {SpecialText::as_text, SpecialText::as_tokens}) {
      const auto ids = tokenizer->encode(content, special);
      for (const int32_t id : ids) {
        if (id < 0 || id >= tokenizer->vocab_size()) std::abort();
      }
      // Bytes take text that is no UTF-8, which decoding cannot give back.
      if (tokenizer->kind() == "char" && tokenizer->decode(ids) != content) std::abort();
    }
  } catch (const Error& error) {
    if (error.code() != ExitCode::data) std::abort();
  }
  return 0;
}
