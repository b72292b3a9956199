// The families of Hugging Face's models that have a named architecture here, in both directions:
// what their config.json means, and how their files name the tensors. One file a family; the table
// is huggingface/families.cpp.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "config/tree.h"
#include "nn/huggingface/config_json.h"

namespace dltrain {

// A config.json as keys of the model section.
struct HuggingFaceModel {
  std::string type;      // of the architecture; set where the person chose one
  ConfigNode arguments;  // its keys
  int64_t vocab_size = 0;

  // Adds a key, with the place of the map.
  void set(const char* key, const ConfigNode& value);
  void set_text(const char* key, std::string text);
  void set_integer(const char* key, int64_t value);
  void set_number(const char* key, double value);
  void set_boolean(const char* key, bool value);
  // The activation of this name in config.json (its key is `json_key`).
  void set_activation(ConfigJson& config, const char* json_key, const std::string& absent);
};

// How a file's tensor is called here.
struct TensorName {
  std::string name;
  bool spare = false;  // passed over by models that have no such parameter
};

// Of a model, as many as `repeat` takes.
inline constexpr int64_t kMostLayers = 10000;

// A key of the architecture that config.json does not have, with its value where it is used.
struct HuggingFaceOption {
  std::string key = {}, value = {};
};

struct HuggingFaceFamily {
  std::string_view model_type;  // in config.json

  // Fills `model` from a config.json; what is wrong or unknown becomes a mistake of it.
  void (*read)(ConfigJson& config, HuggingFaceModel& model);
  TensorName (*tensor)(std::string_view name_in_file);
  // The other direction: what config.json says of a model with these layers (the resolved list, as
  // `config.yaml` of a run has it). A proposal, whose `read` must give the same layers again.
  std::optional<nlohmann::ordered_json> (*propose)(const ConfigNode& layers, int64_t vocab_size);
  // The name of a parameter in files that transformers writes.
  std::string (*exported)(std::string_view name);
  HuggingFaceOption option = {};
};

std::span<const HuggingFaceFamily> huggingface_families();
const HuggingFaceFamily* find_huggingface_family(std::string_view model_type);

// Rows of the table.
HuggingFaceFamily gpt2_family();
HuggingFaceFamily llama_family();
HuggingFaceFamily qwen2_family();
HuggingFaceFamily qwen3_family();
HuggingFaceFamily bert_family();

// For `propose`: the first layer in the order of the text that has these values of keys, at any
// depth, such as {type: embedding, name: wte}; null: none.
struct KeyText {
  const char* key;
  std::string_view text;
};
const ConfigNode* find_layer(const ConfigNode& layers, std::initializer_list<KeyText> wanted);
// The layer behind the one that is called `name`.
const ConfigNode* layer_behind(const ConfigNode& layers, std::string_view name);
// Its keys; 0 or nothing where there are none.
int64_t integer_of(const ConfigNode* layer, std::string_view key);
double number_of(const ConfigNode* layer, std::string_view key);
// The name of an activation in config.json; "" for another layer.
std::string activation_name(const ConfigNode* layer);

}  // namespace dltrain
