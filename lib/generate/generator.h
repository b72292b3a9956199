// Continues prompts: fills the slots of a decoder, samples, ends texts, and gives their text out as
// it comes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generate/decoder.h"
#include "generate/token_sampler.h"
#include "text/tokenizer.h"

namespace dltrain {

// One text to be made.
struct TextRequest {
  std::vector<int32_t> prompt;  // at least one token
  int64_t copy = 0;             // tells several continuations of one prompt apart
  // What an encoder reads, of models that have one; the prompt then is the token that begins a
  // text. `padding` fills it up.
  std::vector<int32_t> source = {};
  int32_t padding = 0;
};

struct GenerateOptions {
  SamplingOptions sampling = {};
  int64_t max_tokens = 128;               // new ones
  std::optional<int32_t> end_token = {};  // ends a text; it is no part of the text
  std::vector<std::string> stop = {};     // texts that end one, and are no part of it either
  const Tokenizer* tokenizer = nullptr;   // null: ids alone come out
};

enum class Finish : uint8_t { length, end_token, stop };
std::string_view finish_name(Finish finish);

struct GeneratedText {
  std::vector<int32_t> tokens;  // new ones, up to what ended the text
  std::string text;             // of these; without a tokenizer empty
  Finish finish = Finish::length;
};

// Called with what is certain of a text: further whole characters, possibly none; `done` once at
// its end. Returns false to end all texts now.
using TextEvent = std::function<bool(size_t text, std::string_view piece,
                                     std::optional<int32_t> token, bool done)>;

struct GenerateReport {
  std::vector<GeneratedText> texts;  // in the order of the requests
  int64_t prompt_tokens = 0, new_tokens = 0;
  double prompt_seconds = 0, step_seconds = 0;  // the latter without those of prompts
  int64_t steps = 0;
};

// What a model needs room for: the tokens of the longest text, or fewer where it has fewer places.
int64_t capacity_for(const DecoderInfo& info, std::span<const TextRequest> requests,
                     int64_t max_tokens);

// Throws Error(usage) "prompt 2: …" for a prompt (or source) that is empty, longer than the model
// has places for, or has ids beyond its vocabulary.
void check_prompts(const DecoderInfo& info, std::span<const TextRequest> requests);

// A text that reaches the last place of a model goes on with the last half of its tokens, which
// are computed anew from the first place on.
GenerateReport generate(Decoder& decoder, std::span<const TextRequest> requests,
                        const GenerateOptions& options, const TextEvent& event = {});

}  // namespace dltrain
