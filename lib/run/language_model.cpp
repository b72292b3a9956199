#include "run/language_model.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "base/utf8.h"
#include "checkpoint/base_weights.h"
#include "checkpoint/weights.h"
#include "data/sequence_config.h"
#include "data/text_files.h"
#include "tensor/safetensors.h"
#include "text/special_tokens.h"

namespace dltrain {
namespace {

namespace fs = std::filesystem;

std::shared_ptr<const Tokenizer> find_tokenizer(const fs::path& given,
                                                const std::optional<ResumeChoice>& checkpoint,
                                                const fs::path& weights) {
  const auto own = [&]() -> std::shared_ptr<const Tokenizer> {
    if (checkpoint) return run_tokenizer(*checkpoint);
    const fs::path folder = fs::is_directory(weights) ? weights : weights.parent_path();
    return holds_tokenizer(folder) ? load_tokenizer(folder) : nullptr;
  };
  if (given.empty()) return own();
  auto used = load_tokenizer(given);
  try {
    const auto trained = own();
    const std::string difference = trained ? tokenizer_difference(*trained, *used) : "";
    if (!difference.empty()) {
      log_warning("{} was trained with another tokenizer than {}: {}", weights.string(),
                  given.string(), difference);
    }
  } catch (const Error&) {
    // Its own is missing or cannot be read: that is what the option is for.
  }
  return used;
}

// Returns whether data of this type may be text.
bool may_have_tokens(std::string_view kind) {
  constexpr std::string_view kKinds[] = {"text", "jsonl", "tokens", "synthetic_tokens", "tensors"};
  return std::find(std::begin(kKinds), std::end(kKinds), kind) != std::end(kKinds);
}

// Returns the shapes of the tensors of a file or a checkpoint; none for other folders of weights.
std::map<std::string, Shape> shapes_of(const fs::path& path, bool checkpoint) {
  std::map<std::string, Shape> out;
  if (!checkpoint && !fs::is_regular_file(path)) return out;
  const SafetensorsSet weights(path, ExitCode::storage);
  for (const auto& [file, entry] : weights.tensors()) out[entry->name] = entry->spec.shape;
  return out;
}

}  // namespace

LanguageModel::LanguageModel(Experiment experiment, std::optional<ResumeChoice> checkpoint,
                             const Engines& engines, const fs::path& tokenizer)
    : experiment_(std::move(experiment)), checkpoint_(std::move(checkpoint)) {
  if (!checkpoint_ && !experiment_.model.init_from) {
    fail(ExitCode::usage,
         "the configuration has no model.init_from, so there are no weights; give a run folder or "
         "a checkpoint");
  }
  // New adapters change nothing.
  auto& lora = experiment_.model.lora;
  if (!checkpoint_ && lora && !lora->init_from) lora.reset();
  const DatasetConfig* data = experiment_.data.train.get();
  if (checkpoint_ && data != nullptr && !may_have_tokens(data->kind)) {
    fail(ExitCode::usage,
         "{} is not a language model: it was trained on data of type {}, not on text",
         checkpoint_->checkpoint.string(), data->kind);
  }
  source_ = checkpoint_ ? checkpoint_->checkpoint : fs::path(*experiment_.model.init_from);
  tokenizer_ = find_tokenizer(tokenizer, checkpoint_, source_);
  trained_ = shapes_of(source_, checkpoint_.has_value());
  device_ = choose_device(experiment_.device, engines, 0);
  check_compute(experiment_.precision, *device_.device);
  log_notices(*device_.device);
  info_ = decoder_info(request());
  if (tokenizer_ && tokenizer_->vocab_size() > info_.ids) {
    fail(ExitCode::usage, "the tokenizer has {} tokens, the model has {}: they do not match",
         tokenizer_->vocab_size(), info_.ids);
  }
  if (tokenizer_) chat_ = chat_of(experiment_, *tokenizer_);
}

void LanguageModel::set_chat(const std::optional<ChatConfig>& format) {
  chat_.reset();
  if (!format) return;
  if (!tokenizer_) fail(ExitCode::usage, "{} has no tokenizer for chats", source_.string());
  chat_.emplace(*format, *tokenizer_);
}

DecodeRequest LanguageModel::request() const {
  DecodeRequest request = decode_request(experiment_);
  request.vocabulary = tokenizer_ ? tokenizer_->vocab_size() : 0;
  request.trained = [this](const std::string& name) {
    const auto at = trained_.find(name);
    return at == trained_.end() ? nullptr : &at->second;
  };
  return request;
}

std::optional<PairTokens> LanguageModel::pair() const {
  if (!info_.source_length) return {};
  if (!tokenizer_) {
    fail(ExitCode::usage,
         "{} has no tokenizer, which is needed for the tokens at the beginning and "
         "end of a text; give --tokenizer",
         source_.string());
  }
  return pair_tokens(*tokenizer_, source_.string());
}

std::vector<int32_t> LanguageModel::encode(const std::string& text, size_t number,
                                           const std::string& before,
                                           std::span<const int32_t> before_ids) {
  const SpecialText special = chat_ ? SpecialText::as_tokens : special_text_of(experiment_);
  if (special == SpecialText::as_text && !warned_) {
    if (const auto name = special_names(*tokenizer_).find(text, 0)) {
      warn_of_name(fmt::format("prompt {}", number), name_of_token(*tokenizer_, name->id));
      warned_ = true;
    }
  }
  return encode_text(*tokenizer_, special, text, number, before, before_ids);
}

Decoder& LanguageModel::open(int64_t slots, int64_t capacity) {
  decoder_ = std::make_unique<Decoder>(DecoderOptions{.engine = device_.engine,
                                                      .device = device_.device.get(),
                                                      .request = request(),
                                                      .slots = slots,
                                                      .capacity = capacity});
  if (checkpoint_) {
    std::vector<ParameterInfo> saved = decoder_->weights();
    if (has_base_elsewhere(experiment_.model)) {
      load_base(*decoder_, experiment_.model, checkpoint_->state);
      std::erase_if(saved, [](const auto& i) { return i.adaptation == Adaptation::frozen; });
    }
    load_trained(*decoder_, saved, checkpoint_->checkpoint);
  } else {
    load_weights(*decoder_, source_, experiment_.model.rename, experiment_.model.strict);
    if (experiment_.model.lora) load_adapters(*decoder_, *experiment_.model.lora->init_from);
  }
  return *decoder_;
}

std::vector<TextRequest> text_requests(const std::vector<std::vector<int32_t>>& prompts,
                                       int64_t copies, const std::optional<PairTokens>& pair) {
  std::map<std::vector<int32_t>, int64_t> made;
  std::vector<TextRequest> out;
  for (const auto& prompt : prompts) {
    int64_t& next = made[prompt];
    TextRequest request{.prompt = prompt};
    if (pair) {
      request = {.prompt = {pair->begin}, .source = prompt, .padding = pair->padding};
      request.source.push_back(pair->end);
    }
    for (int64_t i = 0; i < copies; ++i) {
      request.copy = next++;
      out.push_back(request);
    }
  }
  return out;
}

DecodeRequest decode_request(const Experiment& experiment) {
  DecodeRequest request{.model = experiment.model, .precision = experiment.precision};
  const DatasetConfig* data = experiment.data.train.get();
  const auto source = data != nullptr ? data->source_text() : std::nullopt;
  if (!source) return request;
  request.input = data->next_token_input();
  request.source = SourceRequest{.length = source->length, .lengths = source->lengths};
  return request;
}

SpecialText special_text_of(const Experiment& experiment) {
  const auto* data = dynamic_cast<const SequenceConfig*>(experiment.data.train.get());
  return data != nullptr ? data->special_text() : SpecialText::as_tokens;
}

std::optional<ChatFormat> chat_of(const Experiment& experiment, const Tokenizer& tokenizer) {
  const auto* data = dynamic_cast<const SequenceConfig*>(experiment.data.train.get());
  return data != nullptr ? data->chat(tokenizer) : std::nullopt;
}

std::string prompt_text(const ChatFormat* chat, const std::string& prompt) {
  return chat != nullptr ? chat->prompt({{ChatRole::user, prompt}}, "prompt") : prompt;
}

void set_end(GenerateOptions& options, const ChatFormat* chat, const Tokenizer& tokenizer) {
  options.end_token = tokenizer.special().end_of_text;
  if (chat == nullptr) return;
  options.trims = chat->has_blanks_before();
  const auto end = tokenizer.encode(chat->end(), SpecialText::as_tokens);
  if (end.size() == 1) {
    options.end_token = end[0];
  } else {
    options.stop.push_back(chat->end());
  }
}

std::vector<int32_t> encode_text(const Tokenizer& tokenizer, SpecialText special,
                                 const std::string& text, size_t number, const std::string& before,
                                 std::span<const int32_t> before_ids) {
  try {
    check_utf8(text);
    return tokenizer.encode_after(*tokenizer.encoder(special), before, before_ids, text);
  } catch (const EncodeError& error) {
    throw Error(ExitCode::data, error.reason(),
                fmt::format("prompt {}, byte {}", number, error.offset()));
  }
}

}  // namespace dltrain
