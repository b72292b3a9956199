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
#include "tensor/shape.h"

namespace dltrain {

// A config.json converted to keys of the model section.
struct HuggingFaceModel {
  std::string type;        // of the architecture; set if the configuration has one
  ConfigNode arguments;    // its keys
  int64_t vocab_size = 0;  // 0: of a model without tokens
  std::vector<std::string> class_names = {};  // of the outputs; empty: not given

  // Adds a key, with the place of the map.
  void set(const char* key, const ConfigNode& value);
  void set_text(const char* key, std::string text);
  void set_integer(const char* key, int64_t value);
  void set_number(const char* key, double value);
  void set_boolean(const char* key, bool value);
  // Sets num_classes and the names from id2label.
  void set_classes(ConfigJson& config);
  // Sets the activation of config.json's key `json_key`.
  void set_activation(ConfigJson& config, const char* json_key, const std::string& absent);
};

// The name in dltrain of a tensor in a file. "NAME[3]" is part 3 of the tensor NAME, which files
// keep in parts along the first axis.
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

// A value of HuggingFaceFamily::parts.
inline constexpr int64_t kEachIndex = 0;

// The name of the family of timm, whose config.json has no model_type.
inline constexpr std::string_view kTimm = "timm";

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
  bool images = false;  // the input is an image, otherwise token ids
  // Returns into how many parts of equal extent files divide the first axis of this parameter; 1:
  // none; kEachIndex: one for each index, which does not have that axis.
  int64_t (*parts)(std::string_view name) = [](std::string_view) -> int64_t { return 1; };
};

std::span<const HuggingFaceFamily> huggingface_families();
const HuggingFaceFamily* find_huggingface_family(std::string_view model_type);

// Rows of the table.
HuggingFaceFamily gpt2_family();
HuggingFaceFamily llama_family();
HuggingFaceFamily mistral_family();
HuggingFaceFamily qwen2_family();
HuggingFaceFamily qwen3_family();
HuggingFaceFamily mixtral_family();
HuggingFaceFamily qwen3_moe_family();
HuggingFaceFamily bert_family();
HuggingFaceFamily resnet_family();
HuggingFaceFamily vit_family();
HuggingFaceFamily timm_family();

// Returns the shape of a part of a tensor by HuggingFaceFamily::parts.
Shape part_shape(const Shape& whole, int64_t parts);

// Returns the first layer, at any depth, that has these values of keys, such as {type: embedding,
// name: wte}; null: none.
struct KeyText {
  const char* key;
  std::string_view text;
};
const ConfigNode* find_layer(const ConfigNode& layers, std::initializer_list<KeyText> wanted);
// Returns the layer after the one that is called `name`.
const ConfigNode* layer_after(const ConfigNode& layers, std::string_view name);
// Adds id2label and label2id for outputs without names.
void add_labels(int64_t count, nlohmann::ordered_json& config);
// Return the value of a key, or 0 if there is none; of an integer also as a list of one.
int64_t integer_of(const ConfigNode* layer, std::string_view key);
double number_of(const ConfigNode* layer, std::string_view key);
// Returns the name of an activation in config.json; "" for another layer.
std::string activation_name(const ConfigNode* layer);

}  // namespace dltrain
