#include "data/jsonl.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/utf8.h"
#include "data/memory_dataset.h"
#include "data/ordered_work.h"
#include "data/text_files.h"
#include "text/special_tokens.h"

namespace dltrain {
namespace {

constexpr size_t kJsonlBlock = 256 << 10;  // bytes of lines in a unit of work

struct JsonlLine {
  std::string text, location;
};

bool is_blank_line(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

std::string keys_of(const nlohmann::json& record) {
  constexpr size_t kMax = 10, kLongest = 40;
  std::string out;
  size_t count = 0;
  for (const auto& [key, value] : record.items()) {
    if (++count > kMax) continue;
    out += fmt::format("{}'{}'", out.empty() ? "" : ", ", shown_line(key, kLongest));
  }
  if (count > kMax) out += fmt::format(" and {} more", count - kMax);
  return out.empty() ? "the object is empty" : "its keys are " + out;
}

nlohmann::json record_of(const JsonlLine& line) {
  nlohmann::json record;
  if (line.text[line.text.find_first_not_of(" \t\r")] == '[') {
    throw Error(ExitCode::data,
                "begins an array, but every line must be a JSON object of its own (JSON Lines); "
                "`jq -c '.[]' FILE` writes them",
                line.location);
  }
  try {
    record = parse_json(line.text);
  } catch (const nlohmann::json::exception& error) {
    if (looks_like_utf16(line.text)) {
      throw Error(ExitCode::data, "is UTF-16; save the file as UTF-8", line.location);
    }
    throw Error(ExitCode::data, "is not JSON: " + json_error(error.what()), line.location);
  }
  if (!record.is_object()) throw Error(ExitCode::data, "is not a JSON object", line.location);
  return record;
}

const nlohmann::json& value_of(const nlohmann::json& record, const std::string& key,
                               const std::string& location) {
  const auto found = record.find(key);
  if (found != record.end()) return *found;
  throw Error(ExitCode::data, fmt::format("has no key '{}'; {}", key, keys_of(record)), location);
}

[[noreturn]] void refuse_type(const nlohmann::json& value, const std::string& key, const char* type,
                              const std::string& location) {
  throw Error(ExitCode::data,
              fmt::format("the key '{}' must be {}, not of type {}", key, type, value.type_name()),
              location);
}

std::string text_of(const nlohmann::json& record, const std::string& key,
                    const std::string& location) {
  const nlohmann::json& value = value_of(record, key, location);
  if (!value.is_string()) refuse_type(value, key, "a string", location);
  return value.get<std::string>();
}

// Returns the texts of a line by key.
std::vector<std::string> texts_of(const JsonlLine& line, const std::vector<std::string>& keys) {
  const nlohmann::json record = record_of(line);
  std::vector<std::string> texts;
  for (const std::string& key : keys) texts.push_back(text_of(record, key, line.location));
  return texts;
}

std::vector<ChatTurn> turns_of(const JsonlLine& line, const std::string& key) {
  return chat_turns(value_of(record_of(line), key, line.location), key, line.location);
}

// Reads the next lines, about kJsonlBlock bytes; returns false at the end.
bool next_block(LineReader& lines, std::vector<JsonlLine>& block) {
  block.clear();
  for (size_t bytes = 0; bytes < kJsonlBlock;) {
    const auto line = lines.next();
    if (!line) break;
    if (is_blank_line(*line)) continue;
    bytes += line->size();
    block.push_back({std::string(*line), lines.location()});
  }
  return !block.empty();
}

// Appends the first `length` ids, then padding.
void add_padded(std::vector<int32_t>& out, std::span<const int32_t> ids, int64_t length,
                int32_t padding) {
  const auto kept = std::min<size_t>(ids.size(), static_cast<size_t>(length));
  out.insert(out.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(kept));
  out.insert(out.end(), static_cast<size_t>(length) - kept, padding);
}

}  // namespace

void read_jsonl_texts(LineReader& lines, const std::vector<std::string>& keys, bool chats,
                      const std::function<void(std::string_view)>& use) {
  while (const auto text = lines.next()) {
    if (is_blank_line(*text)) continue;
    const JsonlLine line{std::string(*text), lines.location()};
    if (chats) {
      for (const ChatTurn& turn : turns_of(line, keys[0])) use(turn.content);
    } else {
      for (const std::string& one : texts_of(line, keys)) use(one);
    }
  }
}

void read_labelled_jsonl(LineReader& lines, const std::string& text_key,
                         const std::string& label_key, bool labelled,
                         const std::function<void(LabelledText)>& use) {
  while (const auto line = lines.next()) {
    if (is_blank_line(*line)) continue;
    const std::string location = lines.location();
    const nlohmann::json record = record_of({std::string(*line), location});
    LabelledText out{
        .text = text_of(record, text_key, location), .label = {}, .location = location};
    if (labelled || record.contains(label_key)) {
      const nlohmann::json& label = value_of(record, label_key, location);
      if (label.is_structured()) refuse_type(label, label_key, "a string or a number", location);
      if (!label.is_null())
        out.label = label.is_string() ? label.get<std::string>() : json_text(label);
    }
    use(std::move(out));
  }
}

void read_jsonl(LineReader& lines, const Tokenizer& tokenizer, const JsonlOptions& options,
                const std::function<void(TokenRecord&)>& use) {
  struct Block {
    std::vector<JsonlLine> lines;
    std::vector<TokenRecord> records;
  };
  std::vector<std::unique_ptr<TextEncoder>> encoders(static_cast<size_t>(options.threads));
  bool warned = options.special == SpecialText::as_tokens;
  const NamedTokens names = warned ? NamedTokens() : special_names(tokenizer);
  const auto encode = [&](const JsonlLine& line, TextEncoder& encoder, TokenRecord& record) {
    std::vector<std::string> texts;
    ChatFormat::Rendered chat;
    if (options.chat != nullptr) {
      chat = options.chat->render(turns_of(line, options.keys[0]), line.location);
      texts.push_back(chat.text);
    } else {
      texts = texts_of(line, options.keys);
    }
    record.location = line.location;
    record.name.clear();
    for (size_t i = 0; i < texts.size(); ++i) {
      record.texts[i].clear();
      if (const auto found = names.find(texts[i], 0)) {
        record.name = name_of_token(tokenizer, found->id);
      }
      try {
        if (i == 1 && options.continues) {
          record.texts[1] = tokenizer.encode_after(encoder, texts[0], record.texts[0], texts[1]);
        } else {
          encoder.encode(texts[i], record.texts[i]);
        }
      } catch (const EncodeError& error) {
        throw Error(
            ExitCode::data,
            fmt::format("{} (byte {} of '{}')", error.reason(), error.offset(), options.keys[i]),
            line.location);
      }
    }
    if (options.chat != nullptr) record.answers = answer_tokens(chat, record.texts[0], encoder);
  };
  ordered_work<Block>(
      options.threads, [&](Block& block) { return next_block(lines, block.lines); },
      [&](Block& block, int thread) {
        auto& encoder = encoders[static_cast<size_t>(thread)];
        if (!encoder) encoder = tokenizer.encoder(options.special);
        block.records.resize(block.lines.size());
        for (size_t i = 0; i < block.lines.size(); ++i) {
          encode(block.lines[i], *encoder, block.records[i]);
        }
      },
      [&](Block& block) {
        for (TokenRecord& record : block.records) {
          if (!record.name.empty() && !warned) {
            warn_of_name(record.location, record.name);
            warned = true;
          }
          use(record);
        }
      });
}

PairTokens pair_tokens(const Tokenizer& tokenizer, const std::string& name) {
  const SpecialTokens& special = tokenizer.special();
  if (!special.end_of_text) {
    throw Error(ExitCode::data,
                "the tokenizer has no end-of-text token such as <|endoftext|> (char and "
                "byte: special_tokens: [<|endoftext|>])",
                name);
  }
  const int32_t end = *special.end_of_text;
  return {special.begin_of_text.value_or(end), end, special.padding.value_or(end)};
}

PairCollector::PairCollector(std::string name, std::shared_ptr<const Tokenizer> tokenizer,
                             const Options& options)
    : name_(std::move(name)),
      tokenizer_(std::move(tokenizer)),
      options_(options),
      tokens_(options.chats ? PairTokens{} : pair_tokens(*tokenizer_, name_)) {
  if (!options.chats) return;
  const SpecialTokens& special = tokenizer_->special();
  tokens_.padding = special.padding.value_or(special.end_of_text.value_or(0));
}

void PairCollector::TooLong::check(size_t tokens, int64_t most, const std::string& location) {
  if (tokens <= static_cast<size_t>(most)) return;
  if (count++ > 0) return;
  first = location;
  first_tokens = tokens;
}

void PairCollector::end_file(const std::string& file) {
  const int64_t records = std::exchange(records_, 0);
  if (const TooLong& prompts = long_prompts_; prompts.count > 0) {
    throw Error(ExitCode::data,
                fmt::format("its prompt has {} tokens, which leaves no room for the completion in "
                            "a sequence_length of {}; {} of {} prompts are too long",
                            prompts.first_tokens, options_.length, prompts.count, records),
                prompts.first);
  }
  const auto warn = [&](TooLong& found, const char* what, const char* key, int64_t most) {
    if (found.count > 0) {
      log_warning(
          "{}: {} of {} {} have more than {} tokens and lose their end (the first: {}, {} tokens); "
          "raise data.{}",
          file, found.count, records, what, most, found.first, found.first_tokens, key);
    }
    found = {};
  };
  warn(long_samples_, "records", "sequence_length", options_.length);
  warn(long_sources_, "sources", "source_length", options_.source_length);
}

void PairCollector::add(const TokenRecord& record) {
  const auto length = static_cast<size_t>(options_.length);
  ++records_;
  // The loss ignores the first `prompt` tokens of the sequence.
  std::vector<int32_t> sequence;
  size_t prompt = 1;
  if (options_.source_length > 0) {
    sequence = record.texts[0];
    sequence.push_back(tokens_.end);
    long_sources_.check(sequence.size(), options_.source_length, record.location);
    add_padded(sources_, sequence, options_.source_length, tokens_.padding);
    source_lengths_.push_back(static_cast<int32_t>(
        std::min(sequence.size(), static_cast<size_t>(options_.source_length))));
    sequence.clear();
    sequence.push_back(tokens_.begin);
  } else {
    if (options_.chats && record.answers.empty()) {
      throw Error(ExitCode::data, "has no turn of the assistant", record.location);
    }
    sequence = record.texts[0];
    // A completion alone follows a begin of text, as in `score`.
    const bool alone = !options_.chats && sequence.empty() && !record.texts[1].empty();
    if (alone) sequence.push_back(tokens_.begin);
    prompt = std::max<size_t>(options_.chats ? record.answers.front().first : sequence.size(), 1);
    long_prompts_.check(prompt, options_.length, record.location);
    if (prompt > length) return;
  }
  if (!options_.chats) {
    sequence.insert(sequence.end(), record.texts[1].begin(), record.texts[1].end());
    sequence.push_back(tokens_.end);
  }
  if (sequence.size() < 2) {
    throw Error(ExitCode::data, "has neither a prompt nor a completion", record.location);
  }
  long_samples_.check(sequence.size() - 1, options_.length, record.location);
  add_padded(inputs_, std::span(sequence).first(sequence.size() - 1), options_.length,
             tokens_.padding);
  const auto at = [&](size_t i) { return sequence.begin() + static_cast<std::ptrdiff_t>(i); };
  size_t counted = options_.chats ? 0 : sequence.size();
  std::fill_n(sequence.begin(), prompt, kIgnoredLabel);
  for (const auto& [begin, end] : record.answers) {
    std::fill(at(counted), at(begin), kIgnoredLabel);
    counted = end;
  }
  std::fill(at(counted), sequence.end(), kIgnoredLabel);
  const auto targets = std::span<const int32_t>(sequence).subspan(1);
  add_padded(targets_, targets, options_.length, kIgnoredLabel);
  const auto ignored = [](int32_t id) { return id == kIgnoredLabel; };
  if (std::all_of(targets_.end() - options_.length, targets_.end(), ignored)) {
    throw Error(ExitCode::data, "the loss would count none of its tokens", record.location);
  }
  lengths_.push_back(static_cast<int32_t>(std::min(sequence.size() - 1, length)));
  locations_.push_back(record.location);
  if (locations_.size() % 4096 == 0) {
    check_fits_memory(inputs_.size() * 16 + sources_.size() * 8, name_);
  }
}

std::shared_ptr<const Dataset> PairCollector::finish() {
  if (locations_.empty()) throw Error(ExitCode::data, "has no records", name_);
  const bool paired = options_.source_length > 0;
  std::vector<FieldSpec> fields;
  std::vector<FieldValues> values;
  MemoryFacts facts{.tokenizer = tokenizer_, .label_bound = tokenizer_->vocab_size()};
  const auto add_field = [&](const char* name, const Shape& shape, std::vector<int32_t> ids) {
    fields.push_back({name, {shape, DType::i32}});
    values.emplace_back(std::move(ids));
    facts.id_bounds.emplace_back(shape.rank() > 0 ? tokenizer_->vocab_size()
                                                  : options_.source_length + 1);
  };
  if (paired) add_field("source", {options_.source_length}, std::move(sources_));
  if (paired && options_.source_lengths) add_field("source_lengths", {}, source_lengths_);
  add_field(paired ? "decoder_input" : kInputField, {options_.length}, std::move(inputs_));
  add_field(kTargetField, {options_.length}, std::move(targets_));
  auto location = [locations = std::move(locations_)](int64_t i) {
    return locations[static_cast<size_t>(i)];
  };
  facts.length = [lengths = std::move(lengths_), sources = std::move(source_lengths_),
                  scalar = paired && options_.source_lengths](int field,
                                                              int64_t sample) -> int64_t {
    if (scalar && field == 1) return 0;  // the field source_lengths
    return (field == 0 && !sources.empty() ? sources : lengths)[static_cast<size_t>(sample)];
  };
  return std::make_shared<MemoryDataset>(std::move(fields), std::move(values), std::move(location),
                                         std::move(facts));
}

}  // namespace dltrain
