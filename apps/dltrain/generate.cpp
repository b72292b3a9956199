// dltrain generate MODEL --prompt TEXT: generates text with a trained language model.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <functional>
#include <iostream>
#include <iterator>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "data/line_reader.h"
#include "dltrain/commands.h"
#include "dltrain/language_model_options.h"

namespace dltrain {
namespace {

constexpr size_t kMaxPrompt = 64 << 20;  // bytes

struct GenerateFlags : LanguageModelFlags {
  std::string result;
  std::vector<std::string> prompts, prompt_files, tokens, stop;
  SamplingOptions sampling;
  int64_t max_tokens = 128, samples = 1, batch_size = 8;
  std::string chat_format;
  bool begin_of_text = false, ignore_end = false, no_echo = false, json = false, quiet = false;
};

// A prompt as text (with a tokenizer) and as tokens.
struct Prompt {
  std::string text;
  std::vector<int32_t> tokens;
};

std::string standard_input() {
  std::string text(std::istreambuf_iterator<char>(std::cin), {});
  if (text.size() > kMaxPrompt)
    fail(ExitCode::data, "standard input exceeds the length limit of a prompt");
  return text;
}

// One prompt a line; of .jsonl the field "prompt", "messages" or "tokens".
void read_prompt_file(const std::string& path, const LanguageModel& model,
                      const std::function<void(const std::string&)>& text,
                      const std::function<void(const std::string&)>& whole_text,
                      const std::function<void(std::vector<int32_t>)>& tokens) {
  LineReader lines{std::filesystem::path(path)};
  while (const auto line = lines.next()) {
    if (line->empty()) continue;
    if (!path.ends_with(".jsonl")) {
      text(std::string(*line));
      continue;
    }
    const auto json = try_parse_json(*line);
    if (json.is_object() && json.contains("prompt") && json["prompt"].is_string() &&
        model.tokenizer() != nullptr) {
      text(json["prompt"].get<std::string>());
    } else if (json.is_object() && json.contains("messages") && model.chat() != nullptr) {
      const auto turns = chat_turns(json["messages"], "messages", lines.location());
      whole_text(model.chat()->prompt(turns, lines.location()));
    } else if (json.is_object() && json.contains("tokens") && json["tokens"].is_array() &&
               std::all_of(json["tokens"].begin(), json["tokens"].end(), [](const auto& id) {
                 return id.is_number_integer() && id.template get<int64_t>() >= 0 &&
                        id.template get<int64_t>() <= INT32_MAX;
               })) {
      tokens(json["tokens"].get<std::vector<int32_t>>());
    } else {
      throw Error(ExitCode::data,
                  "expected an object with a text \"prompt\", a list \"tokens\", or (with a chat "
                  "format) a list \"messages\"",
                  lines.location());
    }
  }
}

std::vector<int32_t> parse_tokens(const std::string& text) {
  std::vector<int32_t> out;
  const char *at = text.data(), *end = at + text.size();
  while (at < end) {
    if (*at == ',' || *at == ' ') {
      ++at;
      continue;
    }
    int32_t id = 0;
    const auto [rest, error] = std::from_chars(at, end, id);
    if (error != std::errc() || id < 0) {
      fail(ExitCode::usage, "--tokens '{}' is not a list of token ids (0,15,7)", text);
    }
    out.push_back(id);
    at = rest;
  }
  return out;
}

// The first token of a text without prompt.
int32_t begin_token(const LanguageModel& model) {
  if (const auto token = first_token(model.tokenizer())) return *token;
  fail(ExitCode::usage,
       "no prompt is given, and the tokenizer has no token that begins a text; use --prompt, or "
       "- for standard input");
}

std::vector<Prompt> read_prompts(const GenerateFlags& o, LanguageModel& model) {
  std::vector<Prompt> out;
  const auto add_tokens = [&](std::vector<int32_t> tokens) {
    std::string text = model.tokenizer() != nullptr ? model.tokenizer()->decode(tokens) : "";
    out.push_back({std::move(text), std::move(tokens)});
  };
  // A text that is continued.
  const auto add_whole = [&](const std::string& text) {
    if (model.tokenizer() == nullptr) {
      fail(ExitCode::usage, "{} has no tokenizer; give token ids (--tokens 0,15,7), or --tokenizer",
           model.source().string());
    }
    out.push_back({text, model.encode(text, out.size() + 1)});
    if (o.begin_of_text && model.info().source_length) {
      fail(ExitCode::usage, "--begin-of-text: the decoder of this model always begins with it");
    }
    if (o.begin_of_text) {
      const auto begin = first_token(model.tokenizer());
      if (!begin) fail(ExitCode::usage, "the tokenizer has no token that begins a text");
      out.back().tokens.insert(out.back().tokens.begin(), *begin);
    }
  };
  const auto add_text = [&](const std::string& prompt) {
    add_whole(prompt_text(model.chat(), prompt));
  };
  for (const std::string& prompt : o.prompts) {
    add_text(prompt == "-" ? standard_input() : prompt);
  }
  for (const std::string& file : o.prompt_files) {
    read_prompt_file(file, model, add_text, add_whole, add_tokens);
  }
  for (const std::string& tokens : o.tokens) add_tokens(parse_tokens(tokens));
  if (out.empty() && !o.prompt_files.empty()) {
    fail(ExitCode::data, "{}: contains no prompt", fmt::join(o.prompt_files, ", "));
  }
  if (out.empty() && model.info().source_length) {
    fail(ExitCode::usage, "this model needs a source text: give --prompt, or - for standard input");
  }
  if (out.empty()) add_tokens({begin_token(model)});
  return out;
}

nlohmann::ordered_json text_json(const GenerateFlags& o, const Prompt& prompt, size_t text,
                                 const GeneratedText& made, bool has_text) {
  nlohmann::ordered_json json;
  json["prompt"] = static_cast<int64_t>(text) / o.samples;
  json["sample"] = static_cast<int64_t>(text) % o.samples;
  if (has_text) {
    json["prompt_text"] = prompt.text;
    json["text"] = made.text;
  }
  json["prompt_tokens"] = prompt.tokens;
  json["tokens"] = made.tokens;
  json["finish"] = finish_reason_name(made.finish);
  return json;
}

void write_result(const GenerateFlags& o, const LanguageModel& model,
                  const std::vector<Prompt>& prompts, const GenerateReport& report) {
  nlohmann::ordered_json json{
      {"model", model.source().string()},        {"prompt_tokens", report.prompt_tokens},
      {"new_tokens", report.new_tokens},         {"steps", report.steps},
      {"prompt_seconds", report.prompt_seconds}, {"step_seconds", report.step_seconds}};
  for (size_t i = 0; i < report.texts.size(); ++i) {
    const Prompt& prompt = prompts[i / static_cast<size_t>(o.samples)];
    json["texts"].push_back(text_json(o, prompt, i, report.texts[i], model.tokenizer() != nullptr));
  }
  write_file_atomically(o.result, json_text(json) + "\n");
}

void print_speed(const GenerateReport& report) {
  const auto steps = static_cast<double>(std::max<int64_t>(report.steps, 1));
  fmt::print(stderr, "{} prompt tokens in {:.3f} s; {} new tokens, {:.2f} ms a step\n",
             report.prompt_tokens, report.prompt_seconds, report.new_tokens,
             1e3 * report.step_seconds / steps);
}

// Prints texts that are generated in parallel one after another: the first unfinished one
// immediately, the others when the earlier ones are complete.
class TextPrinter {
 public:
  // `begin` returns the beginning of a text (separator and prompt).
  TextPrinter(size_t texts, std::function<std::string(size_t text)> begin)
      : begin_(std::move(begin)), texts_(texts) {}

  // Adds a piece to a text. Returns false when standard output cannot be written any more.
  bool add(size_t text, std::string_view piece, bool done) {
    texts_[text].held += piece;
    texts_[text].done |= done;
    while (current_ < texts_.size()) {
      Text& now = texts_[current_];
      if (now.held.empty() && !now.done && current_ != text) break;
      if (!begun_) print(begin_(current_));
      begun_ = true;
      print(now.held);
      now.held.clear();
      if (!now.done) break;
      print("\n");
      begun_ = false;
      ++current_;
    }
    if (std::fflush(stdout) != 0) failed_ = true;
    return !failed_;
  }

 private:
  struct Text {
    std::string held;
    bool done = false;
  };

  void print(std::string_view piece) {
    if (piece.empty()) return;
    if (std::fwrite(piece.data(), 1, piece.size(), stdout) != piece.size()) failed_ = true;
  }

  std::function<std::string(size_t)> begin_;
  std::vector<Text> texts_;
  size_t current_ = 0;
  bool begun_ = false;   // the beginning of the current text is printed
  bool failed_ = false;  // standard output cannot be written
};

std::optional<ChatConfig> chat_config(const std::string& name) {
  if (name == "none") return {};
  ChatConfig config;
  if (name != "auto") config.name = chat_format_named(name);
  return config;
}

ExitCode run_generate(const GenerateFlags& o) {
  const auto model = open_language_model(o);
  if (!model->device_note().empty() && !o.quiet) {
    fmt::print(stderr, "{}\n", model->device_note());
  }
  if (!o.chat_format.empty()) model->set_chat(chat_config(o.chat_format));
  const std::vector<Prompt> prompts = read_prompts(o, *model);
  std::vector<std::vector<int32_t>> tokens;
  for (const Prompt& prompt : prompts) tokens.push_back(prompt.tokens);
  const auto pair = model->pair();
  const std::vector<TextRequest> requests = text_requests(tokens, o.samples, pair);
  check_prompts(model->info(), requests);
  const auto slots = std::min<int64_t>(o.batch_size, static_cast<int64_t>(requests.size()));
  Decoder& decoder = model->open(slots, capacity_for(model->info(), requests, o.max_tokens));

  const Tokenizer* tokenizer = model->tokenizer();
  GenerateOptions options{.sampling = o.sampling,
                          .max_tokens = o.max_tokens,
                          .end_token = {},
                          .stop = o.stop,
                          .tokenizer = tokenizer};
  if (tokenizer != nullptr && !o.ignore_end) set_end(options, model->chat(), *tokenizer);
  TextPrinter printer(requests.size(), [&](size_t text) {
    std::string out;
    const auto samples = static_cast<size_t>(o.samples);
    if (requests.size() > 1) {
      out = fmt::format("--- prompt {}, text {} ---\n", text / samples + 1, text % samples + 1);
    }
    // The text of a model with an encoder does not continue its source, nor an answer its question.
    if (!o.no_echo && !pair && model->chat() == nullptr) out += prompts[text / samples].text;
    return out;
  });
  const auto event = [&](size_t text, std::string_view piece, std::optional<int32_t> token,
                         bool done) {
    if (o.json) return true;
    std::string ids;
    if (tokenizer == nullptr && token) ids = fmt::format("{} ", *token);
    return printer.add(text, tokenizer != nullptr ? piece : std::string_view(ids), done);
  };
  const GenerateReport report = generate(decoder, requests, options, event);
  for (size_t i = 0; i < report.texts.size() && o.json; ++i) {
    const Prompt& prompt = prompts[i / static_cast<size_t>(o.samples)];
    fmt::print("{}\n", json_text(text_json(o, prompt, i, report.texts[i], tokenizer != nullptr)));
  }
  if (!o.result.empty()) write_result(o, *model, prompts, report);
  if (!o.quiet) print_speed(report);
  if (std::fflush(stdout) != 0) fail(ExitCode::storage, "standard output cannot be written");
  return ExitCode::ok;
}

void add_sampling_options(CLI::App& command, GenerateFlags& o) {
  add_number(command, "--max-tokens", o.max_tokens, int64_t{0}, int64_t{1} << 30,
             "New tokens of a text, at most (default 128)");
  add_number(command, "--temperature", o.sampling.temperature, 0.0, 1000.0,
             "Logits are divided by it (default 1); 0: always the most likely token");
  add_number(command, "--top-k", o.sampling.top_k, int64_t{0}, int64_t{INT32_MAX},
             "Draw from this number of likeliest tokens; 0: all");
  add_number(command, "--top-p", o.sampling.top_p, 1e-9, 1.0,
             "Draw from the fewest likeliest tokens that together have this probability");
  add_number(command, "--repetition-penalty", o.sampling.repetition_penalty, 1e-3, 1000.0,
             "Above 1: tokens that the text has already become less likely");
  command.add_option("--seed", o.sampling.seed, "Seed of sampling (default 0)")
      ->check(whole_number)
      ->take_last();
  add_number(command, "--num-samples", o.samples, int64_t{1}, int64_t{1} << 20,
             "Texts of each prompt (default 1)");
  add_number(command, "--batch-size", o.batch_size, int64_t{1}, int64_t{4096},
             "Texts that are generated in parallel (default 8); changes no text");
  command.add_option("--stop", o.stop, "A text that ends one; may be given several times")
      ->check([](const std::string& text) {
        return text.empty() ? "expected a text that is not empty" : "";
      })
      ->allow_extra_args(false);
  command.add_flag("--ignore-end", o.ignore_end, "Continue after the token that ends a text");
}

}  // namespace

CommandBody add_generate(CLI::App& command) {
  auto options = std::make_shared<GenerateFlags>();
  GenerateFlags& o = *options;
  add_model_options(command, o);
  command
      .add_option("-p,--prompt", o.prompts,
                  "A text to continue, or of a model with an encoder the source of its text; -: "
                  "standard input. May be given several times")
      ->allow_extra_args(false);
  command
      .add_option("--prompt-file", o.prompt_files,
                  "A prompt a line, without blank lines; of .jsonl the field prompt, messages "
                  "or tokens")
      ->allow_extra_args(false);
  command.add_option("--tokens", o.tokens, "A prompt as token ids: 0,15,7")
      ->allow_extra_args(false);
  add_sampling_options(command, o);
  std::vector<std::string> formats{"auto", "none"};
  for (const std::string_view name : chat_format_names()) formats.emplace_back(name);
  command
      .add_option("--chat-format", o.chat_format,
                  fmt::format("Read prompts as turns of a user, and answer them: {}, auto (by the "
                              "tokenizer's tokens) or none; default: as the run's data",
                              fmt::join(chat_format_names(), ", ")))
      ->check(CLI::IsMember(formats))
      ->take_last();
  command.add_flag("--begin-of-text", o.begin_of_text,
                   "Put the token that begins a text, or else the one that separates texts, before "
                   "every prompt");
  command.add_flag("--no-echo", o.no_echo, "Print what is new, without the prompt");
  command.add_flag("--json", o.json,
                   "Print a JSON object for each text, when all are done; prompt and sample are "
                   "counted from 0");
  add_output(command, "--result", o.result, "Write texts and times to this file as JSON");
  command.add_flag("-q,--quiet", o.quiet, "Do not print the speed on stderr");
  return [options] { return run_generate(*options); };
}

}  // namespace dltrain
