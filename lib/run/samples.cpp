#include "run/samples.h"

#include "base/error.h"
#include "run/language_model.h"

namespace dltrain {
namespace {

DecodeRequest request_of(const Session& session) {
  const Experiment& experiment = *session.experiment;
  Executor& executor = *session.executor;
  DecodeRequest request = decode_request(experiment);
  if (!request.source) request.input = session.data.train->fields()[0].name;
  request.narrow_parameters = experiment.precision.narrow_parameters();
  request.trained = [&executor](const std::string& name) -> const Shape* {
    const auto info = std::ranges::find(executor.weights(), name, &ParameterInfo::name);
    return info == executor.weights().end() ? nullptr : &info->spec.shape;
  };
  if (experiment.training.ema) {
    request.has_average = [&executor](const std::string& name) {
      return executor.layout().find(name, Role::ema) != nullptr;
    };
  }
  return request;
}

std::vector<TextRequest> encoded_prompts(const Experiment& experiment, const Tokenizer& tokenizer) {
  std::vector<std::vector<int32_t>> prompts;
  const std::optional<ChatFormat> chat = chat_of(experiment, tokenizer);
  for (const std::string& prompt : experiment.generation->prompts) {
    prompts.push_back(encode_text(tokenizer, special_text_of(experiment),
                                  prompt_text(chat ? &*chat : nullptr, prompt),
                                  prompts.size() + 1));
  }
  std::optional<PairTokens> pair;
  if (experiment.data.train->source_text()) pair = pair_tokens(tokenizer, "data.tokenizer");
  return text_requests(prompts, 1, pair);
}

// `request` has prompts of the configuration; `state`: see DecoderOptions.
DecoderOptions decoder_options(const Session& session, const DecodeRequest& request,
                               const std::vector<TextRequest>& texts,
                               std::function<std::byte*(const std::string&)> state) {
  return {.engine = &session.executor->engine(),
          .device = &session.executor->device(),
          .request = request,
          .slots = std::min<int64_t>(static_cast<int64_t>(texts.size()), 16),
          .capacity = capacity_for(decoder_info(request), texts,
                                   session.experiment->generation->max_tokens),
          .state = std::move(state)};
}

}  // namespace

size_t sample_bytes(const Session& session) {
  if (!session.experiment->generation) return 0;
  const auto texts = encoded_prompts(*session.experiment, *session.data.train->tokenizer());
  size_t longest = 0;
  for (const TextRequest& text : texts) longest = std::max(longest, text.prompt.size());
  std::byte there{};
  const auto options =
      decoder_options(session, request_of(session), texts, [&](const std::string& name) {
        return session.executor->layout().find(name) != nullptr ? &there : nullptr;
      });
  return decoder_bytes(options, static_cast<int64_t>(longest));
}

void check_samples(const Session& session) {
  const GenerationConfig& config = *session.experiment->generation;
  const auto tokenizer = session.data.train->tokenizer();
  if (tokenizer == nullptr) {
    fail_at(config, "prompts", "samples need data with a tokenizer (type text, jsonl or tokens)");
  }
  try {
    const DecodeRequest request = request_of(session);
    check_prompts(decoder_info(request), encoded_prompts(*session.experiment, *tokenizer));
    // Throws unless the engine has all kernels.
    const Program check(build_decode_graph(request).graph, {.engine = &session.executor->engine(),
                                                            .device = &session.executor->device()});
  } catch (const ConfigError& error) {
    Diagnostics diagnostics = error.diagnostics();
    diagnostics.add(config.location, "samples (generation) are taken from this model");
    throw ConfigError(std::move(diagnostics));
  } catch (const Error& error) {
    if (error.code() != ExitCode::usage && error.code() != ExitCode::data) throw;
    fail_at(config, "prompts", "{}", error.what());
  }
}

Samples::Samples(Session& session)
    : config_(*session.experiment->generation), tokenizer_(session.data.train->tokenizer()) {
  requests_ = encoded_prompts(*session.experiment, *tokenizer_);
  const auto seed = config_.seed.value_or(session.experiment->seed);
  options_ = {.sampling = {.temperature = config_.temperature,
                           .top_k = config_.top_k,
                           .top_p = config_.top_p,
                           .repetition_penalty = config_.repetition_penalty,
                           .seed = static_cast<uint64_t>(seed)},
              .max_tokens = config_.max_tokens,
              .end_token = {},
              .stop = config_.stop,
              .tokenizer = tokenizer_.get()};
  const std::optional<ChatFormat> chat = chat_of(*session.experiment, *tokenizer_);
  set_end(options_, chat ? &*chat : nullptr, *tokenizer_);
  decoder_ = std::make_unique<Decoder>(
      decoder_options(session, request_of(session), requests_,
                      [executor = session.executor.get()](const std::string& name) {
                        return executor->find_state(name);
                      }));
}

std::optional<SampleRecord> Samples::draw(int64_t step, const StopCheck& stop) {
  bool stopped = false;
  GenerateReport report = generate(*decoder_, requests_, options_,
                                   [&](size_t, std::string_view, std::optional<int32_t>, bool) {
                                     return !(stopped = stopped || stop());
                                   });
  if (stopped) return std::nullopt;
  SampleRecord record{.step = step, .texts = {}};
  for (size_t i = 0; i < report.texts.size(); ++i) {
    GeneratedText& text = report.texts[i];
    record.texts.push_back({.prompt = config_.prompts[i],
                            .text = std::move(text.text),
                            .finish = std::string(finish_reason_name(text.finish)),
                            .tokens = static_cast<int64_t>(text.tokens.size())});
  }
  return record;
}

}  // namespace dltrain
