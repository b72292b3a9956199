#include "nn/huggingface/config_json.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json.h"

namespace dltrain {
namespace {

using nlohmann::json;

// Formats a value for a message and shortens long ones.
std::string shown_config_json(const json& value) {
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

// Keys that transformers writes into every file and that do not change the forward.
constexpr const char* kWithoutMeaning[] = {
    "model_type",
    "architectures",
    "transformers_version",
    "torch_dtype",
    "dtype",
    "use_cache",
    "bos_token_id",
    "eos_token_id",
    "sep_token_id",
    "cls_token_id",
    "unk_token_id",
    "mask_token_id",
    "initializer_range",
    "task_specific_params",
    "finetuning_task",
    "problem_type",
    "id2label",
    "label2id",
    "gradient_checkpointing",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "return_dict",
    "tokenizer_class",
    "prefix",
    "name_or_path",
    "generation_config",
    "language",
    "license",
    "auto_map",  // code of the folder, which transformers runs only on request
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "torchscript",
    "tf_legacy_loss",
    "chunk_size_feed_forward",
    // Options of generation, in files of transformers before 5.
    "max_length",
    "min_length",
    "do_sample",
    "early_stopping",
    "num_beams",
    "num_beam_groups",
    "num_return_sequences",
    "diversity_penalty",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
    "repetition_penalty",
    "length_penalty",
    "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size",
    "bad_words_ids",
    "output_scores",
    "return_dict_in_generate",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "decoder_start_token_id",
    "remove_invalid_values",
    "exponential_decay_length_penalty",
    "suppress_tokens",
    "begin_suppress_tokens",
};

}  // namespace

ConfigJson::ConfigJson(std::string location, const std::string& text)
    : location_(std::move(location)) {
  try {
    map_ = parse_json(text);
  } catch (const json::exception& error) {
    throw Error(ExitCode::usage, "is not JSON: " + json_error(error.what()), location_);
  }
  if (!map_.is_object()) throw Error(ExitCode::usage, "is not a JSON object", location_);
  known_.insert(std::begin(kWithoutMeaning), std::end(kWithoutMeaning));
}

void ConfigJson::add_error(std::string message) {
  if (std::find(errors_.begin(), errors_.end(), message) != errors_.end()) return;
  errors_.push_back(std::move(message));
}

bool ConfigJson::has(const char* key) const {
  const auto found = map_.find(key);
  return found != map_.end() && !found->is_null();
}

const json* ConfigJson::take(const char* key) {
  known_.insert(key);
  const auto found = map_.find(key);
  return found == map_.end() || found->is_null() ? nullptr : &*found;
}

void ConfigJson::wrong(const char* key, std::string_view expected, const json& found) {
  add_error(
      fmt::format("{}{}: expected {}, got {}", prefix_, key, expected, shown_config_json(found)));
}

int64_t ConfigJson::integer(const char* key, int64_t absent, int64_t most, int64_t least) {
  const json* value = take(key);
  if (value == nullptr) return absent;
  // Unsigned values beyond int64 are far beyond the limit.
  const bool fits = value->is_number_integer() &&
                    !(value->is_number_unsigned() && value->get<uint64_t>() > uint64_t{INT32_MAX});
  if (!fits || value->get<int64_t>() < least || value->get<int64_t>() > most) {
    wrong(key, fmt::format("an integer from {} to {}", least, most), *value);
    return least;
  }
  return value->get<int64_t>();
}

int64_t ConfigJson::required_integer(const char* key, int64_t most) {
  if (!has(key)) {
    add_error(fmt::format("has no {}{}", prefix_, key));
    return 1;
  }
  return integer(key, 1, most);
}

template <typename T, typename Fits>
T ConfigJson::typed(const char* key, const T& absent, std::string_view expected, Fits fits) {
  const json* value = take(key);
  if (value == nullptr) return absent;
  if (fits(*value)) return value->get<T>();
  wrong(key, expected, *value);
  return absent;
}

double ConfigJson::number(const char* key, double absent, const NumberRange& range) {
  return typed(key, absent, range.expected, [&](const json& value) {
    return value.is_number() && std::isfinite(value.get<double>()) &&
           range.holds(value.get<double>());
  });
}

bool ConfigJson::boolean(const char* key, bool absent) {
  return typed(key, absent, "true or false", [](const json& value) { return value.is_boolean(); });
}

std::string ConfigJson::text(const char* key, const std::string& absent) {
  return typed(key, absent, "a text", [](const json& value) { return value.is_string(); });
}

std::vector<std::string> ConfigJson::texts(const char* key) {
  const json* value = take(key);
  std::vector<std::string> out;
  if (value == nullptr) return out;
  if (value->is_array()) {
    for (const json& element : *value) {
      if (element.is_string()) out.push_back(element.get<std::string>());
    }
  }
  if (!value->is_array() || out.size() != value->size()) wrong(key, "a list of texts", *value);
  return out;
}

std::vector<int64_t> ConfigJson::integers(const char* key, std::vector<int64_t> absent) {
  const auto fits = [](const json& element) {
    return element.is_number_integer() && element > 0 && element <= 2147483647;
  };
  return typed(key, absent, "a list of integers above 0", [&](const json& value) {
    return value.is_array() && std::ranges::all_of(value, fits);
  });
}

int64_t ConfigJson::size(const char* key) {
  const json* value = take(key);
  return value != nullptr && value->is_structured() ? static_cast<int64_t>(value->size()) : 0;
}

ConfigJson ConfigJson::map(const char* key) {
  ConfigJson out(location_);
  out.prefix_ = fmt::format("{}{}.", prefix_, key);
  out.map_ =
      typed(key, json::object(), "a map", [](const json& value) { return value.is_object(); });
  return out;
}

void ConfigJson::ignore(std::initializer_list<const char*> keys) {
  known_.insert(keys.begin(), keys.end());
}

void ConfigJson::only(const char* key, const json& expected) {
  const json* value = take(key);
  if (value == nullptr || *value == expected) return;
  add_error(fmt::format("{}{}: {} is not supported, only {}", prefix_, key,
                        shown_config_json(*value), shown_config_json(expected)));
}

void ConfigJson::must_divide(const char* key, int64_t part, const char* whole_key, int64_t whole) {
  // After an error the numbers may not be those of the file.
  if (!errors_.empty() || whole % part == 0) return;
  add_error(fmt::format("{}{}: {} does not divide {}, which is {}", prefix_, key, part, whole_key,
                        whole));
}

// Keys that begin with an underscore are for transformers only.
void ConfigJson::refuse_unknown() {
  for (const auto& [key, value] : map_.items()) {
    if (known_.count(key) != 0 || key.starts_with("_") || value.is_null()) continue;
    if (key == "quantization_config") {
      add_error(
          fmt::format("{}{}: quantized weights are not supported; use the folder of the "
                      "model before it was quantized",
                      prefix_, key));
      continue;
    }
    add_error(
        fmt::format("{}{}: {} is not a known key; remove it from the file if the model "
                    "does not depend on it",
                    prefix_, key, shown_config_json(value)));
  }
}

void ConfigJson::adopt(ConfigJson&& map) {
  map.refuse_unknown();
  errors_.insert(errors_.end(), map.errors_.begin(), map.errors_.end());
}

}  // namespace dltrain
