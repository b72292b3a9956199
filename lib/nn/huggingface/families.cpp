#include "nn/huggingface/families.h"

#include <algorithm>

#include <fmt/format.h>

#include "config/scalar.h"

namespace dltrain {
namespace {

// The activations and their names in transformers (ACT2FN). The first of several names is written.
struct FamiliesActivation {
  const char* name;
  const char* type;
  const char* approximate;  // of gelu
};
constexpr FamiliesActivation kActivations[] = {
    {"gelu_new", "gelu", "tanh"},
    {"gelu_pytorch_tanh", "gelu", "tanh"},
    {"gelu_fast", "gelu", "tanh"},
    {"gelu", "gelu", "none"},
    {"gelu_python", "gelu", "none"},
    {"silu", "silu", nullptr},
    {"swish", "silu", nullptr},
    {"relu", "relu", nullptr},
    {"relu6", "relu6", nullptr},
    {"tanh", "tanh", nullptr},
    {"sigmoid", "sigmoid", nullptr},
    {"mish", "mish", nullptr},
    {"quick_gelu", "quick_gelu", nullptr},
};

std::string_view text_of(const ConfigNode& map, std::string_view key) {
  const ConfigNode* value = map.find(key);
  return value != nullptr && value->is_scalar() ? std::string_view(value->text) : "";
}

// Calls `use` with every layer at any depth until it returns true.
template <typename Use>
const ConfigNode* each_layer(const ConfigNode& node, const Use& use) {
  if (node.is_map() && node.find("type") != nullptr && use(node)) return &node;
  for (const ConfigNode& item : node.items) {
    if (const ConfigNode* found = each_layer(item, use)) return found;
  }
  return nullptr;
}

}  // namespace

void HuggingFaceModel::set(const char* key, const ConfigNode& value) {
  arguments.set({key, arguments.location}, value);
}
void HuggingFaceModel::set_text(const char* key, std::string text) {
  set(key, ConfigNode::make_scalar(std::move(text), arguments.location));
}
void HuggingFaceModel::set_integer(const char* key, int64_t value) {
  set_text(key, std::to_string(value));
}
void HuggingFaceModel::set_number(const char* key, double value) {
  set_text(key, number_text(value));
}
void HuggingFaceModel::set_boolean(const char* key, bool value) {
  set_text(key, value ? "true" : "false");
}

void HuggingFaceModel::set_activation(ConfigJson& config, const char* json_key,
                                      const std::string& absent) {
  const std::string name = config.text(json_key, absent);
  for (const FamiliesActivation& row : kActivations) {
    if (name != row.name) continue;
    if (row.approximate == nullptr) return set_text("activation", row.type);
    HuggingFaceModel layer{.type = {}, .arguments = ConfigNode::make_map(arguments.location)};
    layer.set_text(row.type, row.approximate);
    return set("activation", layer.arguments);
  }
  config.add_error(fmt::format("{}: the activation '{}' is not supported", json_key, name));
}

void HuggingFaceModel::set_classes(ConfigJson& config) {
  ConfigJson labels = config.map("id2label");
  const int64_t named = config.size("id2label"), count = std::max(named, config.size("label2id"));
  set_integer("num_classes", config.integer("num_labels", count > 0 ? count : 2));
  bool given = false;  // transformers writes LABEL_0, … where there are no names
  for (int64_t i = 0; i < named; ++i) {
    const std::string none = fmt::format("LABEL_{}", i);
    class_names.push_back(labels.text(std::to_string(i).c_str(), none));
    given = given || class_names.back() != none;
  }
  if (!given) class_names.clear();
}

Shape part_shape(const Shape& whole, int64_t parts) {
  if (parts == kEachIndex) return Shape(whole.dims().subspan(1));
  Shape out = whole;
  out[0] /= parts;
  return out;
}

void add_labels(int64_t count, nlohmann::ordered_json& config) {
  nlohmann::ordered_json labels = nlohmann::ordered_json::object();
  nlohmann::ordered_json ids = nlohmann::ordered_json::object();
  for (int64_t i = 0; i < count; ++i) {
    labels[std::to_string(i)] = fmt::format("LABEL_{}", i);
    ids[fmt::format("LABEL_{}", i)] = i;
  }
  config["id2label"] = labels;
  config["label2id"] = ids;
}

const ConfigNode* find_layer(const ConfigNode& layers, std::initializer_list<KeyText> wanted) {
  return each_layer(layers, [&](const ConfigNode& layer) {
    return std::all_of(wanted.begin(), wanted.end(),
                       [&](const KeyText& w) { return text_of(layer, w.key) == w.text; });
  });
}

const ConfigNode* layer_after(const ConfigNode& layers, std::string_view name) {
  for (size_t i = 0; i < layers.items.size(); ++i) {
    const ConfigNode& item = layers.items[i];
    if (layers.is_list() && item.is_map() && text_of(item, "name") == name) {
      return i + 1 < layers.items.size() ? &layers.items[i + 1] : nullptr;
    }
    if (const ConfigNode* found = layer_after(item, name)) return found;
  }
  return nullptr;
}

int64_t integer_of(const ConfigNode* layer, std::string_view key) {
  const ConfigNode* value = layer != nullptr ? layer->find(key) : nullptr;
  if (value != nullptr && value->is_list() && value->items.size() == 1) value = &value->items[0];
  return value != nullptr && value->is_scalar() ? as_integer(*value).value_or(0) : 0;
}

double number_of(const ConfigNode* layer, std::string_view key) {
  const ConfigNode* value = layer != nullptr ? layer->find(key) : nullptr;
  return value != nullptr && value->is_scalar() ? as_number(*value).value_or(0) : 0;
}

std::string activation_name(const ConfigNode* layer) {
  for (const FamiliesActivation& row : kActivations) {
    if (layer == nullptr || text_of(*layer, "type") != row.type) continue;
    if (row.approximate == nullptr || text_of(*layer, "approximate") == row.approximate) {
      return row.name;
    }
  }
  return "";
}

std::span<const HuggingFaceFamily> huggingface_families() {
  static const HuggingFaceFamily families[] = {gpt2_family(),      llama_family(), mistral_family(),
                                               qwen2_family(),     qwen3_family(), mixtral_family(),
                                               qwen3_moe_family(), bert_family(),  resnet_family(),
                                               vit_family(),       timm_family()};
  return families;
}

const HuggingFaceFamily* find_huggingface_family(std::string_view model_type) {
  for (const HuggingFaceFamily& family : huggingface_families()) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

}  // namespace dltrain
