// The keys of `type: jsonl`.

#include "base/cpus.h"
#include "base/error.h"
#include "data/config.h"
#include "data/jsonl.h"
#include "data/memory_dataset.h"
#include "data/sequence_config.h"
#include "data/text_files.h"
#include "data/warn_once.h"

namespace dltrain {
namespace {

struct JsonlConfig final : SequenceConfig {
  std::optional<std::string> field, prompt, completion, messages, source, target;
  std::optional<ChatConfig> chat_format;
  std::optional<int64_t> source_length;
  bool source_lengths = true;

  void describe(Fields& f) override {
    describe_path(f, "Files with one JSON object per line, plain or gzip, or glob patterns of them",
                  "filename");
    describe_tokenizer(f);
    f.text("field", field,
           {.doc = "Key of the text of records that are documents of one stream (default: text)",
            .known_as = {"text_field", "text_column"}});
    f.text("prompt", prompt,
           {.doc = "Key of the text that the loss ignores; with completion",
            .known_as = {"instruction", "prompt_field"}});
    f.text("completion", completion,
           {.doc = "Key of the text after the prompt, which the loss counts",
            .known_as = {"response", "completion_field"}});
    f.text("messages", messages,
           {.doc = "Key of a chat, a list of turns with role and content (or from and value), of "
                   "which the loss counts the assistant's",
            .known_as = {"conversations", "chat", "field_messages"}});
    f.section("chat_format", chat_format,
              {.doc = "How chats are written as text", .known_as = {"chat_template", "template"}});
    f.text("source", source,
           {.doc = "Key of the text that an encoder reads, the input `source`; with target",
            .known_as = {"source_column", "input_text"}});
    f.text("target", target,
           {.doc = "Key of the text that a decoder generates; it reads the preceding tokens as the "
                   "input `decoder_input`",
            .known_as = {"target_column", "target_text"}});
    f.integer(
        "source_length", source_length,
        {.doc = "Tokens of the source; if absent, sequence_length", .min = 1, .max = 1 << 24});
    f.boolean(
        "source_lengths", source_lengths,
        {.doc = "With source: samples have an input `source_lengths`, the number of tokens of "
                "the source without padding, as a mask for attention"});
    describe_length_buckets(f);
    SequenceConfig::describe(f);
  }

  void validate(Diagnostics& diagnostics) const override {
    SequenceConfig::validate(diagnostics);
    const int uses = (field ? 1 : 0) + (prompt || completion ? 1 : 0) + (messages ? 1 : 0) +
                     (source || target ? 1 : 0);
    if (uses > 1 || prompt.has_value() != completion.has_value() ||
        source.has_value() != target.has_value()) {
      diagnostics.add(location,
                      "give one of: field, prompt with completion, messages, source with target");
    }
    const auto refuse = [&](bool wrong, const char* key, const char* message) {
      if (wrong) diagnostics.add(*this, key, message);
    };
    refuse(source_length && !source, "source_length", "source_length needs source and target");
    refuse(!source_lengths && !source, "source_lengths", "source_lengths needs source and target");
    refuse(chat_format && !messages, "chat_format", "chat_format is for messages");
    refuse(messages && special_text() == SpecialText::as_text, "messages",
           "chats have names of special tokens; leave tokenizer.parse_special: false out");
    refuse(pairs() && curriculum, "curriculum", "a curriculum needs documents (field)");
    refuse(pairs() && document_mask, "document_mask", "document_mask needs documents (field)");
    refuse(length_buckets && !pairs(), "length_buckets", "length_buckets needs pairs of texts");
    refuse(length_buckets && !sources.empty(), "length_buckets",
           "length_buckets and sources cannot be combined; remove one of them");
    refuse(length_buckets && source && !source_lengths, "source_lengths",
           "length_buckets removes padding, which changes a model without source_lengths");
    refuse(mlm_probability && pairs(), "mlm_probability",
           "mlm_probability needs documents (field)");
  }

  bool is_one_text() const override { return !pairs(); }
  std::optional<SourceText> source_text() const override {
    if (!source) return {};
    return SourceText{.length = source_length.value_or(sequence_length), .lengths = source_lengths};
  }
  std::optional<ChatFormat> chat(const Tokenizer& with) const override {
    if (!messages) return {};
    return ChatFormat(chat_format.value_or(ChatConfig()), with);
  }
  std::string next_token_input() const override {
    return source ? "decoder_input" : SequenceConfig::next_token_input();
  }

 protected:
  std::shared_ptr<const TokenStream> open_stream(
      const Paths& paths, const TokenizerPointer& given,
      const std::filesystem::path& collected) const override {
    if (pairs()) {
      fail(ExitCode::usage,
           "data prepare takes documents: records with {} are samples of their own, which are read "
           "from JSON Lines at each start (data.path); remove these keys and give `field` if their "
           "texts are documents",
           prompt     ? "prompt and completion"
           : messages ? "messages"
                      : "source and target");
    }
    const auto made = make_tokenizer(paths, given);
    TokenCollector tokens(made->vocab_size(), collected);
    const auto& separator = made->special().end_of_text;
    for_each_file(paths, [&](LineReader& lines) {
      tokens.begin_segment(lines.name());
      int64_t records = 0, empty = 0;
      read_jsonl(lines, *made, options(), [&](TokenRecord& record) {
        ++records;
        empty += record.texts[0].empty() ? 1 : 0;
        tokens.add(record.texts[0]);
        if (separator) tokens.add({&*separator, 1});
        check_fits_memory(2 * tokens.memory_bytes(), lines.name());
      });
      if (records > 1) warn_of_joined_documents(lines.name(), *made);
      if (separator && empty > 0) {
        warn_once(
            fmt::format("{}: {} of {} texts are empty: only the end-of-text token of each is "
                        "trained on",
                        lines.name(), empty, records));
      }
    });
    return tokens.finish(made);
  }

  std::shared_ptr<const Dataset> open_files(const Paths& paths, const TokenizerPointer& given,
                                            bool training) const override {
    if (!pairs()) return SequenceConfig::open_files(paths, given, training);
    const auto made = make_tokenizer(paths, given);
    PairCollector pairs(paths.front(), made,
                        {.length = sequence_length,
                         .source_length = source ? source_text()->length : 0,
                         .source_lengths = source_lengths,
                         .chats = messages.has_value()});
    const std::optional<ChatFormat> format = chat(*made);
    JsonlOptions read = options();
    if (format) read.chat = &*format;
    for_each_file(paths, [&](LineReader& lines) {
      read_jsonl(lines, *made, read, [&](TokenRecord& record) { pairs.add(record); });
      pairs.end_file(lines.name());
    });
    return transform_samples(pairs.finish(), changes());
  }
  DataSplit split_files(const Paths& paths, const TokenizerPointer& given,
                        const HeldOut& part) const override {
    if (!pairs()) return SequenceConfig::split_files(paths, given, part);
    return split_samples(open_files(paths, given, true), part);
  }

 private:
  // Records are samples.
  bool pairs() const { return prompt || messages || source; }

  template <typename Use>
  static void for_each_file(const Paths& paths, const Use& use) {
    for (const std::string& file : expand_paths(paths)) {
      LineReader lines{std::filesystem::path(file)};
      use(lines);
    }
  }

  JsonlOptions options() const {
    JsonlOptions out{.special = special_text(), .threads = bound_cpu_count()};
    if (prompt) {
      out.keys = {*prompt, *completion};
      out.continues = true;
    } else if (source) {
      out.keys = {*source, *target};
    } else if (messages) {
      out.keys = {*messages};
    } else {
      out.keys = {field.value_or("text")};
    }
    return out;
  }

  TokenizerPointer make_tokenizer(const Paths& paths, const TokenizerPointer& given) const {
    if (given) return given;
    return tokenizer->open([&](const auto& use) {
      if (messages) {
        // An alphabet has the characters of the format too.
        for (const auto& text : chat_format.value_or(ChatConfig()).texts()) use(text);
      }
      for_each_file(paths, [&](LineReader& lines) {
        read_jsonl_texts(lines, options().keys, messages.has_value(), use);
      });
    });
  }
};

}  // namespace

KindRow<DatasetConfig> jsonl_row() {
  return {"jsonl", "Texts of JSON Lines: documents, prompts with completions, chats, or pairs",
          make_kind_of<JsonlConfig>};
}

}  // namespace dltrain
