// Making texts: the order of what is told, how texts end, slots that are used again, and texts
// beyond the last place.
#include "generate/generator.h"

#include <map>

#include "catch.h"
#include "cpu/engine.h"
#include "generate/opened.h"
#include "text/simple_tokenizers.h"

namespace dltrain {
namespace {

constexpr const char* kGpt2 =
    "{type: gpt2, num_layers: 1, hidden_size: 16, num_heads: 2, max_positions: 30}";
const SamplingOptions kGreedy{.temperature = 0};

std::vector<TextRequest> requests(const std::vector<std::vector<int32_t>>& prompts) {
  std::vector<TextRequest> out;
  for (const auto& prompt : prompts) out.push_back({prompt, 0});
  return out;
}

TEST_CASE("texts are told piece by piece, and slots are used again") {
  const ModelConfig model = model_of(kGpt2);
  Opened opened(model, cpu_engine(), DType::f32, 2);
  const auto asked = requests({text(1, 3), text(2, 9), text(3, 1), text(4, 20), text(5, 2)});
  std::map<size_t, std::vector<int32_t>> told;
  std::map<size_t, int> ended;
  const GenerateReport report =
      generate(opened.decoder, asked, {.sampling = {.seed = 4}, .max_tokens = 6},
               [&](size_t i, std::string_view piece, std::optional<int32_t> token, bool done) {
                 CHECK(piece.empty());
                 CHECK(ended[i] == 0);
                 if (token) told[i].push_back(*token);
                 ended[i] += done ? 1 : 0;
                 return true;
               });
  REQUIRE(report.texts.size() == 5);
  CHECK(report.prompt_tokens == 35);
  CHECK(report.new_tokens == 30);
  for (size_t i = 0; i < 5; ++i) {
    CHECK(told[i] == report.texts[i].tokens);
    CHECK(ended[i] == 1);
    CHECK(report.texts[i].tokens.size() == 6);
    CHECK(report.texts[i].finish == FinishReason::length);
    const GenerateReport alone = generate(opened.decoder, std::span(asked).subspan(i, 1),
                                          {.sampling = {.seed = 4}, .max_tokens = 6});
    CHECK(alone.texts[0].tokens == report.texts[i].tokens);
  }
}

TEST_CASE("a text ends with its token, a stop text, or when nobody wants more") {
  const ModelConfig model = model_of(kGpt2);
  Opened opened(model, cpu_engine(), DType::f32, 1);
  const auto asked = requests({text(1, 3)});
  const std::vector<int32_t> all =
      generate(opened.decoder, asked, {.sampling = {.seed = 9}, .max_tokens = 20}).texts[0].tokens;
  const int32_t end = all[7];
  const auto first = static_cast<size_t>(std::find(all.begin(), all.end(), end) - all.begin());
  const GenerateReport ended = generate(
      opened.decoder, asked, {.sampling = {.seed = 9}, .max_tokens = 20, .end_token = end});
  CHECK(ended.texts[0].finish == FinishReason::end_token);
  CHECK(ended.texts[0].tokens ==
        std::vector<int32_t>(all.begin(), all.begin() + static_cast<int>(first)));
  const auto tokenizer = byte_tokenizer("bytes", {});
  const std::string stop{static_cast<char>(all[4]), static_cast<char>(all[5])};
  const GenerateReport stopped = generate(opened.decoder, asked,
                                          {.sampling = {.seed = 9},
                                           .max_tokens = 20,
                                           .end_token = {},
                                           .stop = {stop},
                                           .tokenizer = tokenizer.get()});
  CHECK(stopped.texts[0].finish == FinishReason::stop);
  CHECK(stopped.texts[0].text.size() <= 4);
  int pieces = 0;
  const GenerateReport cancelled = generate(
      opened.decoder, asked, {.sampling = {.seed = 9}, .max_tokens = 20},
      [&](size_t, std::string_view, std::optional<int32_t>, bool) { return ++pieces < 3; });
  CHECK(cancelled.texts[0].tokens.size() == 3);
}

TEST_CASE("a text beyond the last place goes on from the last half of its tokens") {
  const ModelConfig model = model_of(kGpt2);
  Opened opened(model, cpu_engine(), DType::f32, 1);
  REQUIRE(opened.decoder.capacity() == 30);
  const std::vector<int32_t> prompt = text(6, 25);
  const GenerateReport report =
      generate(opened.decoder, requests({prompt}), {.sampling = kGreedy, .max_tokens = 40});
  std::vector<int32_t> whole = prompt;
  whole.insert(whole.end(), report.texts[0].tokens.begin(), report.texts[0].tokens.end());
  REQUIRE(whole.size() == 65);
  // Token 30 has no place: the 15 tokens up to it are the beginning of what follows.
  const std::vector<int32_t> half(whole.begin() + 16, whole.begin() + 31);
  const GenerateReport again =
      generate(opened.decoder, requests({half}), {.sampling = kGreedy, .max_tokens = 15});
  CHECK(again.texts[0].tokens == std::vector<int32_t>(whole.begin() + 31, whole.begin() + 46));
}

TEST_CASE("prompts are checked before anything runs") {
  const ModelConfig model = model_of(kGpt2);
  const DecoderInfo info = decoder_info({.model = model, .vocabulary = kIds});
  const auto message = [&](const std::vector<std::vector<int32_t>>& prompts) -> std::string {
    try {
      check_prompts(info, requests(prompts));
    } catch (const Error& error) {
      return error.code() == ExitCode::usage ? error.what() : "another code";
    }
    return "";
  };
  CHECK(message({text(1, 30), {0}, {30}}) == "");
  CHECK(message({{1}, {}}) == "prompt 2 has no tokens");
  CHECK(message({text(1, 31)}) == "prompt 1 has 31 tokens, the model has positions for 30");
  CHECK(message({{1, 31}}) == "prompt 1: token 31 is beyond the vocabulary (0 to 30)");
  CHECK(message({{-1}}) == "prompt 1: token -1 is beyond the vocabulary (0 to 30)");
  CHECK(capacity_for(info, requests({{1}, text(2, 9)}), 5) == 14);
  CHECK(capacity_for(info, requests({text(2, 9)}), 100) == 30);
}

}  // namespace
}  // namespace dltrain
