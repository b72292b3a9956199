// Continues prompts: assigns texts to the slots of a decoder, samples tokens, ends texts, and
// reports their text during generation.
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
  int64_t copy = 0;             // the number of the continuation of this prompt
  // The input of the encoder, for models that have one; the prompt is then the token that begins a
  // text. The source is padded with `padding`.
  std::vector<int32_t> source = {};
  int32_t padding = 0;
  // If not empty, the text gets these tokens instead of sampled ones: to measure how likely they
  // are.
  std::vector<int32_t> continuation = {};
};

struct GenerateOptions {
  SamplingOptions sampling = {};
  int64_t max_tokens = 128;               // new ones
  std::optional<int32_t> end_token = {};  // ends a text and is not part of it
  std::vector<std::string> stop = {};     // texts that end a text and are not part of it
  const Tokenizer* tokenizer = nullptr;   // null: the result has only ids
  bool trims = false;                     // blanks at the beginning of a text are no part of it
};

enum class FinishReason : uint8_t { length, end_token, stop };
std::string_view finish_reason_name(FinishReason finish);

struct GeneratedText {
  std::vector<int32_t> tokens;  // new ones, up to what ended the text
  std::string text;             // of these; without a tokenizer empty
  FinishReason finish = FinishReason::length;
  // If the request has a continuation: the sum of log p over its tokens, and whether each of them
  // is the likeliest token at its position.
  double log_likelihood = 0;
  bool greedy = true;
};

// Called with the next complete characters of a text, possibly none; `done` is true once at its
// end. Returns false to end all texts.
using TextEvent = std::function<bool(size_t text, std::string_view piece,
                                     std::optional<int32_t> token, bool done)>;

struct GenerateReport {
  std::vector<GeneratedText> texts;  // in the order of the requests
  int64_t prompt_tokens = 0, new_tokens = 0;
  double prompt_seconds = 0, step_seconds = 0;  // the latter without those of prompts
  int64_t steps = 0;
};

// Returns the length of the longest text in tokens, limited by the positions of the model.
int64_t capacity_for(const DecoderInfo& info, std::span<const TextRequest> requests,
                     int64_t max_tokens);

// Throws Error(usage) "prompt 2: …" for a prompt (or source) that is empty, has more tokens than
// the model has positions, or has ids beyond its vocabulary.
void check_prompts(const DecoderInfo& info, std::span<const TextRequest> requests);

// A text that reaches the last position of a model continues with the last half of its tokens,
// which are computed again from the first position on.
GenerateReport generate(Decoder& decoder, std::span<const TextRequest> requests,
                        const GenerateOptions& options, const TextEvent& event = {});

}  // namespace dltrain
