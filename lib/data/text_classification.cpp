// Texts with classes, of CSV files and JSON Lines: a sample is one text.
//
// Its inputs are `input`, the tokens between the tokenizer's begin and end of text (if it has them:
// BERT's [CLS] and [SEP]), and `attention_mask`, 1 for these tokens and 0 for the padding after
// them. Longer texts lose their end. Every label is the name of a class.
#include <algorithm>
#include <atomic>
#include <map>

#include "base/cpus.h"
#include "base/error.h"
#include "base/log.h"
#include "base/utf8.h"
#include "data/config.h"
#include "data/csv.h"
#include "data/jsonl.h"
#include "data/memory_dataset.h"
#include "data/ordered_work.h"
#include "data/sequence_config.h"
#include "data/text_files.h"

namespace dltrain {
namespace {

constexpr size_t kTextsOfWork = 256;

bool is_json_lines(std::string_view file) {
  if (file.ends_with(".gz")) file.remove_suffix(3);
  return file.ends_with(".jsonl") || file.ends_with(".json") || file.ends_with(".ndjson");
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

struct TextClassificationConfig final : DatasetConfig {
  std::vector<std::string> path;
  std::string text = "text", label = "label";
  std::unique_ptr<TokenizerConfig> tokenizer;
  int64_t sequence_length = 0;
  std::optional<std::string> delimiter;

  void describe(Fields& f) override {
    f.texts("path", path,
            {.doc = "Files with a text and its class in each line, plain or gzip, or glob patterns "
                    "of them: JSON Lines if they end in .jsonl, .ndjson or .json, otherwise CSV",
             .required = true,
             .min_size = 1,
             .scalar_ok = true,
             .is_path = true,
             .known_as = {"file", "files", "filename"}});
    f.text("text", text,
           {.doc = "Key or column of the text; a number from 0 for a table without a header",
            .known_as = {"field", "text_column", "sentence"}});
    f.text("label", label,
           {.doc = "Key or column of its class, likewise: every different text or number is the "
                   "name of a class",
            .known_as = {"target", "label_column", "class"}});
    f.text("delimiter", delimiter,
           {.doc = "The character between columns; if absent, detected from the first lines: tab, "
                   "semicolon, bar or comma",
            .known_as = {"sep", "separator"}});
    f.one_of("tokenizer", tokenizer, tokenizer_table(),
             {.doc = "How text is converted to tokens", .required = true});
    f.integer("sequence_length", sequence_length,
              {.doc = "Tokens of a sample: longer texts lose their end, shorter ones are padded, "
                      "which the input `attention_mask` marks by 0",
               .required = true,
               .min = 3,
               .max = 1 << 24,
               .known_as = {"max_length", "max_seq_length", "block_size", "context_length"}});
    describe_length_buckets(f);
    DatasetConfig::describe(f);
    if (tokenizer && !tokenizer->parse_special) tokenizer->parse_special = false;
  }

  void validate(Diagnostics& diagnostics) const override {
    DatasetConfig::validate(diagnostics);
    refuse_image_keys(diagnostics);
    if (delimiter && delimiter->size() != 1) {
      diagnostics.add(*this, "delimiter", "delimiter must be one character");
    }
    if (is_number(text) != is_number(label)) {
      diagnostics.add(*this, "label", "text and label must both be names or both be numbers");
    }
    if (text == label) {
      diagnostics.add(*this, "label", "text and label are both '{}'; a text is not its own class",
                      label);
    }
  }

  std::shared_ptr<const Dataset> open(const OpenOptions& how) const override {
    return load(how, nullptr, /*names_classes=*/how.trained == nullptr);
  }
  std::shared_ptr<const Dataset> open_as_eval(
      const std::function<std::shared_ptr<const Dataset>()>& train,
      const OpenOptions& how) const override {
    return load(how, tokenizer->learns() ? train()->tokenizer() : nullptr, false);
  }

 private:
  std::vector<LabelledText> read(bool labelled) const {
    std::vector<LabelledText> out;
    size_t bytes = 0;
    const auto use = [&](LabelledText record) {
      if (record.text.find_first_not_of(" \t\r\n") == std::string::npos) {
        throw Error(ExitCode::data, "the text is empty", record.location);
      }
      if (labelled && record.label.value_or("").empty()) {
        throw Error(ExitCode::data, "the label is missing", record.location);
      }
      bytes += record.text.size() + static_cast<size_t>(sequence_length) * 2 * sizeof(int32_t);
      if (out.size() % 4096 == 0) check_fits_memory(bytes, record.location);
      out.push_back(std::move(record));
    };
    for (const std::string& file : expand_paths(path)) {
      if (is_json_lines(file)) {
        LineReader lines{std::filesystem::path(file)};
        read_labelled_jsonl(lines, text, label, labelled, use);
      } else {
        read_table(file, labelled, use);
      }
    }
    if (out.empty()) throw Error(ExitCode::data, "has no texts", path.front());
    check_fits_memory(bytes, path.front());
    return out;
  }

  void read_table(const std::string& file, bool labelled,
                  const std::function<void(LabelledText)>& use) const {
    const auto open = [&] { return LineReader{std::filesystem::path(file)}; };
    const CsvDialect dialect =
        find_dialect(open, {.delimiter = delimiter, .decimal = ".", .header = !is_number(text)});
    CsvReader reader(open, dialect.delimiter, dialect.skipped);
    std::vector<std::string> names;
    size_t of_text = 0;
    std::optional<size_t> of_label;
    const auto begin = [&](const CsvReader::Cells& cells) {
      names = column_names(cells, dialect.header);
      const auto find = [&](const std::string& name) {
        if (dialect.header && std::ranges::count(names, name) > 1) {
          refuse_twice(name, reader.location());
        }
        return find_column(names, name, dialect.header, reader.location());
      };
      of_text = find(text);
      if (labelled || column_called(names, label)) of_label = find(label);
    };
    reader.read_table(dialect.header, {}, begin, [&](const CsvReader::Cells& cells) {
      if (cells.size() != names.size()) {
        throw Error(ExitCode::data,
                    fmt::format("{} columns, but the first line has {} (texts with the delimiter "
                                "'{}' need double quotes)",
                                cells.size(), names.size(), dialect.delimiter),
                    reader.location());
      }
      LabelledText out{
          .text = std::string(cells[of_text]), .label = {}, .location = reader.location()};
      if (of_label && !cells[*of_label].empty()) out.label = std::string(cells[*of_label]);
      use(std::move(out));
    });
  }

  // Returns the first tokens of each text, in order, at most `room`.
  std::vector<std::vector<int32_t>> encode(const std::vector<LabelledText>& texts,
                                           const Tokenizer& with, size_t room) const {
    struct Work {
      size_t first = 0, last = 0;
    };
    const int threads = bound_cpu_count();
    std::vector<std::unique_ptr<TextEncoder>> encoders(static_cast<size_t>(threads));
    std::vector<std::vector<int32_t>> out(texts.size());
    size_t next = 0;
    std::atomic<int64_t> cut = 0;
    ordered_work<Work>(
        threads,
        [&](Work& work) {
          work = {next, std::min(next + kTextsOfWork, texts.size())};
          next = work.last;
          return work.first < work.last;
        },
        [&](Work& work, int thread) {
          auto& encoder = encoders[static_cast<size_t>(thread)];
          if (!encoder) encoder = with.encoder(tokenizer->special_text());
          for (size_t i = work.first; i < work.last; ++i) {
            try {
              encoder->encode(texts[i].text, out[i]);
            } catch (const EncodeError& error) {
              throw Error(ExitCode::data,
                          fmt::format("{} (byte {} of the text)", error.reason(), error.offset()),
                          texts[i].location);
            }
            if (out[i].size() <= room) continue;
            out[i].resize(room);
            ++cut;
          }
        },
        [](Work&) {});
    if (cut > 0) {
      log_info("{}: {} of {} texts are longer than data.sequence_length {} and lose their end",
               path.front(), cut.load(), texts.size(), sequence_length);
    }
    return out;
  }

  // Names that differ in nearly every text are no classes, but another column.
  void check_are_classes(const std::vector<std::string>& names, size_t texts) const {
    if (names.size() <= kMaxClassNames || 2 * names.size() <= texts) return;
    throw Error(ExitCode::data,
                fmt::format("the label '{}' has {} different values in {} texts ('{}'), too many "
                            "for classes",
                            shown_line(label, kShownCell), names.size(), texts,
                            shown_line(names.front(), kShownCell)),
                path.front());
  }

  // `names_classes`: the labels define the classes, which are otherwise those of other data.
  std::shared_ptr<const Dataset> load(const OpenOptions& how, std::shared_ptr<const Tokenizer> with,
                                      bool names_classes) const {
    std::vector<LabelledText> texts = read(how.targets);
    if (!with) {
      with = tokenizer->open([&](const auto& use) {
        for (const LabelledText& one : texts) use(one.text);
      });
    }
    const SpecialTokens& special = with->special();
    const auto length = static_cast<size_t>(sequence_length);
    const size_t around = (special.begin_of_text ? 1 : 0) + (special.end_of_text ? 1 : 0);
    const auto tokens = encode(texts, *with, length - around);
    const int32_t padding = special.padding.value_or(special.end_of_text.value_or(0));

    // The names of classes in order, then their numbers.
    std::map<std::string, int32_t> numbers;
    for (LabelledText& one : texts) {
      if (!one.label) continue;
      one.label = std::string(category_text(*one.label));
      if (*one.label == std::to_string(kIgnoredLabel)) one.label.reset();
      if (!one.label) continue;
      numbers.emplace(*one.label, 0);
    }
    auto schema = std::make_shared<DataSchema>();
    for (const auto& [name, number] : numbers) schema->class_names.push_back(name);
    sort_values(schema->class_names);
    if (names_classes) check_are_classes(schema->class_names, texts.size());
    for (size_t i = 0; i < numbers.size(); ++i) {
      numbers[schema->class_names[i]] = static_cast<int32_t>(i);
    }

    std::vector<int32_t> ids(texts.size() * length, padding), mask(ids.size()), labels, lengths;
    std::vector<std::string> locations;
    for (size_t i = 0; i < texts.size(); ++i) {
      if (tokens[i].empty() && around == 0) {
        throw Error(ExitCode::data, "the text has no tokens", texts[i].location);
      }
      auto at = ids.begin() + static_cast<std::ptrdiff_t>(i * length);
      if (special.begin_of_text) *at++ = *special.begin_of_text;
      at = std::copy(tokens[i].begin(), tokens[i].end(), at);
      if (special.end_of_text) *at++ = *special.end_of_text;
      lengths.push_back(static_cast<int32_t>(tokens[i].size() + around));
      std::fill_n(mask.begin() + static_cast<std::ptrdiff_t>(i * length), lengths.back(), 1);
      labels.push_back(texts[i].label ? numbers[*texts[i].label] : kIgnoredLabel);
      locations.push_back(std::move(texts[i].location));
    }
    MemoryFacts facts{
        .tokenizer = with, .schema = schema, .id_bounds = {with->vocab_size(), 2, std::nullopt}};
    facts.length = [lengths = std::move(lengths)](int field, int64_t sample) -> int64_t {
      return field < 2 ? lengths[static_cast<size_t>(sample)] : 0;
    };
    const bool any = !numbers.empty();
    const TensorSpec sequence{{sequence_length}, DType::i32};
    std::vector<FieldValues> values;  // a list in braces would copy them
    values.emplace_back(std::move(ids));
    values.emplace_back(std::move(mask));
    values.emplace_back(std::move(labels));
    auto dataset = std::make_shared<MemoryDataset>(
        std::vector<FieldSpec>{{kInputField, sequence},
                               {"attention_mask", sequence},
                               {kTargetField, {Shape{}, DType::i32}}},
        std::move(values),
        [locations = std::move(locations)](int64_t i) { return locations[static_cast<size_t>(i)]; },
        std::move(facts));
    return any ? std::shared_ptr<const Dataset>(dataset) : without_targets(dataset);
  }
};

}  // namespace

KindRow<DatasetConfig> text_classification_row() {
  return {"text_classification", "Texts with classes, of CSV files or JSON Lines",
          make_kind_of<TextClassificationConfig>};
}

}  // namespace dltrain
