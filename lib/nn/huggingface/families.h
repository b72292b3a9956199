// The families of Hugging Face's models that have a named architecture: the conversion of
// config.json and of the names of tensors in both directions. There is one file for each family;
// the table is huggingface/families.cpp.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "config/tree.h"
#include "nn/huggingface/config_json.h"

namespace dltrain {

// A config.json converted to keys of the model section.
struct HuggingFaceModel {
  std::string type;      // of the architecture; set if the configuration has one
  ConfigNode arguments;  // its keys
  int64_t vocab_size = 0;

  // Adds a key, with the place of the map.
  void set(const char* key, const ConfigNode& value);
  void set_text(const char* key, std::string text);
  void set_integer(const char* key, int64_t value);
  void set_number(const char* key, double value);
  void set_boolean(const char* key, bool value);
  // Sets the activation of config.json's key `json_key`.
  void set_activation(ConfigJson& config, const char* json_key, const std::string& absent);
};

// The name in dltrain of a tensor in a file. "NAME[3]" is part 3 of the stacked tensor NAME, which
// files keep as a tensor for each expert.
struct TensorName {
  std::string name;
  bool spare = false;  // ignored by models that have no such parameter
};

// The limit of layers, which is that of `repeat`.
inline constexpr int64_t kMaxLayers = 10000;

// A key of the architecture that config.json does not have, with its value if it is used.
struct HuggingFaceOption {
  std::string key = {}, value = {};
};

struct HuggingFaceFamily {
  std::string_view model_type;  // in config.json

  // Fills `model` from a config.json, and reports its errors and unknown keys.
  void (*read)(ConfigJson& config, HuggingFaceModel& model);
  TensorName (*tensor)(std::string_view name_in_file);
  // Proposes a config.json for a model with these layers (the resolved list of `config.yaml`). It
  // is correct if `read` gives the same layers.
  std::optional<nlohmann::ordered_json> (*propose)(const ConfigNode& layers, int64_t vocab_size);
  // Returns the name of a parameter, or of a part of one, in files of transformers.
  std::string (*exported)(std::string_view name) = [](std::string_view n) {
    return std::string(n);
  };
  HuggingFaceOption option = {};
  // Returns whether files have the parts of this parameter instead of the whole.
  bool (*stacked)(std::string_view name) = [](std::string_view) { return false; };
};

std::span<const HuggingFaceFamily> huggingface_families();
const HuggingFaceFamily* find_huggingface_family(std::string_view model_type);

// Rows of the table.
HuggingFaceFamily gpt2_family();
HuggingFaceFamily llama_family();
HuggingFaceFamily qwen2_family();
HuggingFaceFamily qwen3_family();
HuggingFaceFamily mixtral_family();
HuggingFaceFamily qwen3_moe_family();
HuggingFaceFamily bert_family();

// Returns the first layer, at any depth, that has these values of keys, such as {type: embedding,
// name: wte}; null: none.
struct KeyText {
  const char* key;
  std::string_view text;
};
const ConfigNode* find_layer(const ConfigNode& layers, std::initializer_list<KeyText> wanted);
// Returns the layer after the one that is called `name`.
const ConfigNode* layer_after(const ConfigNode& layers, std::string_view name);
// Return the value of a key, or 0 if there is none.
int64_t integer_of(const ConfigNode* layer, std::string_view key);
double number_of(const ConfigNode* layer, std::string_view key);
// Returns the name of an activation in config.json; "" for another layer.
std::string activation_name(const ConfigNode* layer);

}  // namespace dltrain
