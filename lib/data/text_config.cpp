// The keys of `type: text`.
#include <deque>

#include "base/cpus.h"
#include "base/error.h"
#include "config/suggest.h"
#include "data/config.h"
#include "data/memory_dataset.h"
#include "data/sequence_config.h"
#include "data/text_files.h"
#include "data/warn_once.h"

namespace dltrain {
namespace {

// Calls use(text) for each file. Errors have the place.
void for_each_text(const std::deque<TextFile>& files,
                   const std::function<void(std::string_view)>& use) {
  for (const TextFile& file : files) {
    try {
      use(file.text());
    } catch (const EncodeError& error) {
      throw Error(ExitCode::data, error.reason(), file.location_of(error.offset()));
    }
  }
}

struct TextConfig final : SequenceConfig {
  void describe(Fields& f) override {
    describe_path(f, "Text files (UTF-8, plain or gzip), or glob patterns of them, in this order",
                  "filename");
    describe_tokenizer(f);
    SequenceConfig::describe(f);
  }

 protected:
  std::shared_ptr<const TokenStream> open_stream(
      const Paths& paths, const TokenizerPointer& given,
      const std::filesystem::path& collected) const override {
    std::deque<TextFile> files;
    std::vector<std::string> empty, json;
    for (const std::string& file : expand_paths(paths)) {
      const std::string_view text = files.emplace_back(file).text();
      const std::string_view line = text.substr(0, text.find('\n'));
      if (line.starts_with("{\"") && line.ends_with('}')) json.push_back(file);
      if (!text.empty()) continue;
      empty.push_back(file);
      files.pop_back();
    }
    if (files.empty()) throw Error(ExitCode::data, "is empty", empty.front());
    if (!empty.empty()) warn_once("skipped empty files: " + some_names(empty));
    if (!json.empty()) {
      warn_once(some_names(json) +
                ": looks like JSON Lines, which is trained on as it stands; "
                "type: jsonl reads its texts");
    }
    const auto made =
        given ? given : tokenizer->open([&](const auto& use) { for_each_text(files, use); });
    const TokenizeOptions options{.special = special_text(), .threads = bound_cpu_count()};
    TokenCollector tokens(made->vocab_size(), collected);
    const auto& separator = made->special().end_of_text;
    if (files.size() > 1) warn_of_joined_documents(files.front().name(), *made);
    for (const TextFile& file : files) {
      if (separator && tokens.size() > 0) tokens.add({&*separator, 1});
      tokens.begin_segment(file.name());
      tokenize(file, *made, options, [&](std::span<const int32_t> ids) {
        tokens.add(ids);
        check_fits_memory(2 * tokens.memory_bytes(), file.name());
      });
    }
    return tokens.finish(made);
  }
};

}  // namespace

KindRow<DatasetConfig> text_row() {
  return {"text", "Sequences of tokens of plain text files, for language models",
          make_kind_of<TextConfig>};
}

}  // namespace dltrain
