#include "generate/generator.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>

#include "base/error.h"
#include "generate/text_stream.h"

namespace dltrain {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point from) {
  return std::chrono::duration<double>(Clock::now() - from).count();
}

// A text that is being generated.
struct Text {
  Text(const TextRequest& request, const GenerateOptions& options)
      : tokens(request.prompt),
        sampler(options.sampling, request.prompt, request.copy, request.source) {
    if (options.tokenizer == nullptr) return;
    stream.emplace(*options.tokenizer, options.stop);
    // With a source the decoded text does not continue the prompt.
    if (!request.source.empty()) return;
    for (int32_t token : tokens) stream->skip(token);
  }

  std::vector<int32_t> tokens;
  size_t first = 0;  // of those that the slot has seen: tokens before have left the window
  TokenSampler sampler;
  std::optional<TextStream> stream;
};

class Generation {
 public:
  Generation(Decoder& decoder, std::span<const TextRequest> requests,
             const GenerateOptions& options, const TextEvent& event)
      : decoder_(decoder),
        requests_(requests),
        options_(options),
        event_(event),
        slots_(static_cast<size_t>(decoder.slots())),
        next_(slots_.size()) {
    report_.texts.resize(requests.size());
  }

  GenerateReport run() {
    while (!cancelled_ && fill_slots()) step();
    return std::move(report_);
  }

 private:
  struct Slot {
    size_t index = 0;
    std::unique_ptr<Text> text;  // null: the slot is free
  };

  // Begins texts in free slots; false when none is left to go on with.
  bool fill_slots() {
    for (size_t s = 0; s < slots_.size() && !cancelled_; ++s) {
      while (!slots_[s].text && begun_ < requests_.size() && !cancelled_) begin(s);
    }
    return std::any_of(slots_.begin(), slots_.end(),
                       [](const Slot& s) { return s.text != nullptr; });
  }

  void begin(size_t slot) {
    const TextRequest& request = requests_[begun_];
    slots_[slot] = {begun_++, std::make_unique<Text>(request, options_)};
    report_.prompt_tokens += static_cast<int64_t>(request.prompt.size() + request.source.size());
    if (options_.max_tokens == 0) return finish(slots_[slot], FinishReason::length);
    if (!request.source.empty()) read_source(slot, request);
    sample(slots_[slot], take_prompt(slot));
  }

  void read_source(size_t slot, const TextRequest& request) {
    const Clock::time_point started = Clock::now();
    decoder_.read_source(static_cast<int64_t>(slot), request.source, request.padding);
    report_.prompt_seconds += seconds_since(started);
  }

  std::span<const float> take_prompt(size_t slot) {
    const Clock::time_point started = Clock::now();
    const Text& text = *slots_[slot].text;
    const auto logits =
        decoder_.prefill(static_cast<int64_t>(slot), std::span(text.tokens).subspan(text.first), 0);
    report_.prompt_seconds += seconds_since(started);
    return logits;
  }

  void step() {
    bool any = false;
    for (size_t s = 0; s < slots_.size(); ++s) {
      next_[s] = {};
      Text* text = slots_[s].text.get();
      if (text == nullptr) continue;
      const auto seen = static_cast<int64_t>(text->tokens.size() - text->first);
      if (decoder_.info().keeps_tokens || decoder_.info().max_positions) {
        // The place of the newest token is seen − 1.
        if (seen > decoder_.capacity()) {
          text->first = text->tokens.size() - static_cast<size_t>((decoder_.capacity() + 1) / 2);
          sample(slots_[s], take_prompt(s));
          continue;
        }
      }
      next_[s] = {text->tokens.back(), static_cast<int32_t>(seen - 1)};
      any = true;
    }
    if (!any || cancelled_) return;
    const Clock::time_point started = Clock::now();
    const std::span<const float> logits = decoder_.step(next_);
    const auto width = static_cast<size_t>(decoder_.info().vocabulary);
    for (size_t s = 0; s < slots_.size() && !cancelled_; ++s) {
      if (next_[s].token >= 0) sample(slots_[s], logits.subspan(s * width, width));
    }
    report_.step_seconds += seconds_since(started);
    ++report_.steps;
  }

  void sample(Slot& slot, std::span<const float> logits) {
    Text& text = *slot.text;
    GeneratedText& out = report_.texts[slot.index];
    logits = logits.first(static_cast<size_t>(decoder_.info().ids));
    const std::vector<int32_t>& wanted = requests_[slot.index].continuation;
    if (!wanted.empty()) {
      measure(wanted[out.tokens.size()], logits, out);
      text.tokens.push_back(out.tokens.back());
      if (out.tokens.size() == wanted.size()) finish(slot, FinishReason::length);
      return;
    }
    const int32_t token = text.sampler.next(logits, static_cast<int64_t>(text.tokens.size()));
    if (options_.end_token && token == *options_.end_token) {
      return finish(slot, FinishReason::end_token);
    }
    text.tokens.push_back(token);
    out.tokens.push_back(token);
    ++report_.new_tokens;
    const std::string piece = text.stream ? text.stream->next(token) : std::string();
    tell(slot, piece, token, false);
    if (text.stream && text.stream->stopped()) return finish(slot, FinishReason::stop);
    if (static_cast<int64_t>(out.tokens.size()) >= options_.max_tokens) {
      finish(slot, FinishReason::length);
    }
  }

  static void measure(int32_t token, std::span<const float> logits, GeneratedText& out) {
    const auto greatest = std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit - *greatest));
    if (!std::isfinite(sum)) fail(ExitCode::diverged, "the model's logits are not finite");
    out.log_likelihood += logits[static_cast<size_t>(token)] - *greatest - std::log(sum);
    out.greedy = out.greedy && greatest - logits.begin() == token;
    out.tokens.push_back(token);
  }

  void finish(Slot& slot, FinishReason reason) {
    Text& text = *slot.text;
    const std::string rest = text.stream ? text.stream->finish() : std::string();
    report_.texts[slot.index].finish =
        text.stream && text.stream->stopped() ? FinishReason::stop : reason;
    tell(slot, rest, {}, true);
    slot.text.reset();
  }

  void tell(const Slot& slot, std::string piece, std::optional<int32_t> token, bool done) {
    std::string& text = report_.texts[slot.index].text;
    if (options_.trims && text.empty()) piece.erase(0, piece.find_first_not_of(' '));
    text += piece;
    if (event_ && !event_(slot.index, piece, token, done)) cancelled_ = true;
  }

  Decoder& decoder_;
  std::span<const TextRequest> requests_;
  const GenerateOptions& options_;
  const TextEvent& event_;
  std::vector<Slot> slots_;
  std::vector<Decoder::Next> next_;
  size_t begun_ = 0;
  bool cancelled_ = false;
  GenerateReport report_;
};

// `positions`: of the model, where they have an end.
void check_tokens(size_t number, const std::vector<int32_t>& tokens, int64_t ids,
                  const std::optional<int64_t>& positions) {
  if (tokens.empty()) fail(ExitCode::usage, "prompt {} has no tokens", number);
  if (positions && static_cast<int64_t>(tokens.size()) > *positions) {
    fail(ExitCode::usage, "prompt {} has {} tokens, the model has positions for {}", number,
         tokens.size(), *positions);
  }
  for (int32_t token : tokens) {
    if (token >= 0 && token < ids) continue;
    fail(ExitCode::usage, "prompt {}: token {} is beyond the vocabulary (0 to {})", number, token,
         ids - 1);
  }
}

}  // namespace

std::string_view finish_reason_name(FinishReason finish) {
  constexpr std::string_view kNames[] = {"length", "end_token", "stop"};
  return kNames[static_cast<size_t>(finish)];
}

int64_t capacity_for(const DecoderInfo& info, std::span<const TextRequest> requests,
                     int64_t max_tokens) {
  int64_t most = 1;
  for (const TextRequest& r : requests) {
    most = std::max(most, static_cast<int64_t>(r.prompt.size()) + max_tokens);
  }
  return std::min(most, info.max_positions.value_or(most));
}

void check_prompts(const DecoderInfo& info, std::span<const TextRequest> requests) {
  for (size_t i = 0; i < requests.size(); ++i) {
    check_tokens(i + 1, requests[i].prompt, info.ids, info.max_positions);
    if (info.source_length) {
      check_tokens(i + 1, requests[i].source, info.source_ids, info.source_length);
    }
  }
}

GenerateReport generate(Decoder& decoder, std::span<const TextRequest> requests,
                        const GenerateOptions& options, const TextEvent& event) {
  return Generation(decoder, requests, options, event).run();
}

}  // namespace dltrain
