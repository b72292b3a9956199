// dltrain score MODEL FILE: how likely a language model finds continuations of texts.
#include <algorithm>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "data/line_reader.h"
#include "dltrain/commands.h"
#include "dltrain/language_model_options.h"

namespace dltrain {
namespace {

struct ScoreFlags : LanguageModelFlags {
  std::string file, output;
  int64_t batch_size = 8;
};

struct Pair {
  std::string context, continuation, location;
};

std::vector<Pair> read_pairs(const std::string& file) {
  std::vector<Pair> pairs;
  LineReader lines{std::filesystem::path(file)};
  while (const auto line = lines.next()) {
    if (line->empty()) continue;
    const auto json = try_parse_json(*line);
    const auto text = [&](const char* key) {
      if (!json.is_object() || !json.contains(key) || !json[key].is_string()) {
        throw Error(ExitCode::data,
                    "expected an object with the texts \"context\" and \"continuation\"",
                    lines.location());
      }
      return json[key].get<std::string>();
    };
    pairs.push_back({text("context"), text("continuation"), lines.location()});
    if (pairs.back().continuation.empty()) {
      throw Error(ExitCode::data, "the continuation is empty", lines.location());
    }
  }
  if (pairs.empty()) throw Error(ExitCode::data, "has no lines", file);
  return pairs;
}

// Encodes both texts as prompts with completions. Blanks at the end of the context move to the
// continuation, as its first token has them in most vocabularies. (lm-eval-harness does the same.)
TextRequest request_for(LanguageModel& model, Pair& pair, size_t number) {
  const size_t end = pair.context.find_last_not_of(" \t\n\r") + 1;
  pair.continuation.insert(0, pair.context.substr(end));
  pair.context.resize(end);
  TextRequest request;
  if (!pair.context.empty()) request.prompt = model.encode(pair.context, number);
  request.continuation = model.encode(pair.continuation, number, pair.context, request.prompt);
  if (request.prompt.empty()) {
    const auto first = first_token(model.tokenizer());
    if (!first) {
      throw Error(ExitCode::data,
                  "the context is empty, and the tokenizer has no token that begins a text",
                  pair.location);
    }
    request.prompt = {*first};
  }
  if (request.continuation.empty()) {
    throw Error(ExitCode::data, "the continuation adds no token to those of the context",
                pair.location);
  }
  return request;
}

// Leaves out the first tokens of a context that is too long for the model.
void fit(TextRequest& request, const std::optional<int64_t>& positions,
         const std::string& location) {
  if (!positions) return;
  const auto room = *positions + 1 - static_cast<int64_t>(request.continuation.size());
  if (room < 1) {
    throw Error(ExitCode::data,
                fmt::format("the continuation has {} tokens, the model has {} positions",
                            request.continuation.size(), *positions),
                location);
  }
  const auto over = static_cast<int64_t>(request.prompt.size()) - room;
  if (over > 0) request.prompt.erase(request.prompt.begin(), request.prompt.begin() + over);
}

ExitCode run_score(const ScoreFlags& o) {
  std::vector<Pair> pairs = read_pairs(o.file);
  const auto model = open_language_model(o);
  if (model->tokenizer() == nullptr) {
    fail(ExitCode::usage, "{} has no tokenizer; give --tokenizer", model->source().string());
  }
  if (model->info().source_length) {
    fail(ExitCode::usage, "score needs a model without an encoder");
  }
  std::vector<TextRequest> requests;
  int64_t longest = 0;
  for (Pair& pair : pairs) {
    requests.push_back(request_for(*model, pair, requests.size() + 1));
    fit(requests.back(), model->info().max_positions, pair.location);
    longest = std::max(longest, static_cast<int64_t>(requests.back().continuation.size()));
  }
  check_prompts(model->info(), requests);
  const auto slots = std::min<int64_t>(o.batch_size, static_cast<int64_t>(requests.size()));
  Decoder& decoder = model->open(slots, capacity_for(model->info(), requests, longest));
  const GenerateReport report = generate(decoder, requests, {.max_tokens = longest});
  std::string out;
  for (size_t i = 0; i < report.texts.size(); ++i) {
    const GeneratedText& text = report.texts[i];
    const nlohmann::ordered_json line{{"log_likelihood", text.log_likelihood},
                                      {"tokens", text.tokens.size()},
                                      {"bytes", pairs[i].continuation.size()},
                                      {"greedy", text.greedy}};
    out += json_text(line) + "\n";
  }
  if (!o.output.empty()) {
    write_file_atomically(o.output, out);
  } else if (std::fwrite(out.data(), 1, out.size(), stdout) != out.size() ||
             std::fflush(stdout) != 0) {
    fail(ExitCode::storage, "standard output cannot be written");
  }
  return ExitCode::ok;
}

}  // namespace

CommandBody add_score(CLI::App& command) {
  auto options = std::make_shared<ScoreFlags>();
  ScoreFlags& o = *options;
  add_model_options(command, o);
  command
      .add_option("FILE", o.file,
                  "JSON Lines with the texts context and continuation; an empty context means the "
                  "begin of a text")
      ->required();
  add_output(command, "-o,--output", o.output,
             "Write a JSON object for each line to this file instead of standard output: the sum "
             "of log p of its tokens, their number, the bytes, and whether each is the likeliest");
  add_number(command, "--batch-size", o.batch_size, int64_t{1}, int64_t{4096},
             "Texts that are computed in parallel (default 8)");
  return [options] { return run_score(*options); };
}

}  // namespace dltrain
