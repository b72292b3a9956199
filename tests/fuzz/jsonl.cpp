// libFuzzer entry: any bytes as JSON Lines. Allowed: records, or Error(data).
#include "data/jsonl.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "text/simple_tokenizers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dltrain;
  if (size == 0) return 0;
  // The first byte chooses the use of the texts.
  const bool pairs = data[0] & 1;
  const int64_t source = data[0] & 2 ? 5 : 0;
  try {
    const auto tokenizer = byte_tokenizer("fuzz", {"<|endoftext|>"});
    LineReader lines("fuzz", std::string_view(reinterpret_cast<const char*>(data + 1), size - 1));
    if (data[0] & 4) {
      read_labelled_jsonl(lines, "a", "b", pairs, [](const LabelledText&) {});
      return 0;
    }
    const bool chats = data[0] & 8;
    ChatConfig config;
    config.name = ChatFormatName::plain;
    config.user = "{content}";
    const ChatFormat format(config, *tokenizer);
    PairCollector collector("fuzz", tokenizer,
                            {.length = 8, .source_length = chats ? 0 : source, .chats = chats});
    JsonlOptions options{.keys = {"a"}, .special = SpecialText::as_tokens};
    if (chats) options.chat = &format;
    if (pairs && !chats) options.keys.emplace_back("b");
    read_jsonl(lines, *tokenizer, options, [&](TokenRecord& record) {
      if (pairs || chats) collector.add(record);
    });
    if (!pairs && !chats) return 0;
    const auto dataset = collector.finish();
    std::vector<int32_t> ids(8);
    for (int64_t sample = 0; sample < dataset->size(); ++sample) {
      dataset->gather(dataset->target_field(), {&sample, 1},
                      reinterpret_cast<std::byte*>(ids.data()));
      int64_t counted = 0;
      for (const int32_t id : ids) counted += id != kIgnoredLabel;
      if (counted < 1) std::abort();
    }
  } catch (const Error& error) {
    if (error.code() != ExitCode::data) std::abort();
  }
  return 0;
}
