#include "nn/huggingface/identify.h"

#include <sstream>

#include "base/json.h"
#include "config/bind.h"
#include "config/dump.h"
#include "config/yaml.h"
#include "nn/huggingface/folder.h"

namespace dltrain {
namespace {

// Removes optional inputs of BERT, which a folder does not specify; runs of earlier versions have
// only `attention_mask`.
std::string without_masks(std::string text) {
  const auto replace = [&](std::string_view from, std::string_view to) {
    for (size_t at; (at = text.find(from)) != std::string::npos;) text.replace(at, from.size(), to);
  };
  for (const std::string mask : {"attention_mask", "token_type_ids"}) {
    for (const std::string& name : {mask + "?", mask}) {
      replace(", \"" + name + "\"", "");
      replace(", " + name, "");
    }
  }
  replace("inputs: [previous]", "inputs: null");
  return text;
}

// Returns the list of layers of the resolved configuration, without what config.json cannot say of
// training.
std::string layers_text(const ModelConfig& model) {
  std::istringstream dump(dump_config(model));
  std::string line, out;
  bool inside = false;
  while (std::getline(dump, line)) {
    if (!line.starts_with(" ")) inside = line.starts_with("layers:");
    if (line.find(" router_z_loss: ") != std::string::npos) continue;
    if (inside) out += line + "\n";
  }
  return without_masks(out);
}

ConfigNode parse_layers(const std::string& text) {
  Diagnostics diagnostics;
  const auto source = std::make_shared<Source>(Source{"model", text});
  const auto tree = read_yaml(source, 0, diagnostics);
  diagnostics.throw_if_any();
  check_internal(tree && tree->find("layers") != nullptr, "a dump without layers");
  return *tree->find("layers");
}

// Returns the layers that a config.json describes, or "" if it is not valid. `option`: an argument
// that config.json does not have, as {name, value}.
std::string layers_of(const nlohmann::ordered_json& json, const HuggingFaceOption& option) {
  HuggingFaceConfig reading = read_huggingface_config("config.json", json_text(json), "", {});
  if (!reading.errors.empty()) return "";
  HuggingFaceModel& read = reading.model;
  read.set_text("type", read.type);
  if (!option.key.empty()) read.set_text(option.key.c_str(), option.value);
  Diagnostics diagnostics;
  ModelConfig model;
  bind(model, read.arguments, diagnostics);
  return diagnostics.empty() ? layers_text(model) : "";
}

// Returns the layer whose weight the head has; "": it has one of its own.
std::string tied_layer(const ConfigNode& layers) {
  const ConfigNode* head = find_layer(layers, {{"type", "lm_head"}});
  const ConfigNode* of = head != nullptr ? head->find("share") : nullptr;
  return of != nullptr && !of->is_null() ? of->text : "";
}

// Returns the first line in which two lists of layers differ, with the name of its layer.
std::string first_difference(const std::string& a, const std::string& b) {
  std::istringstream left(a), right(b);
  std::string of_a, of_b;
  while (std::getline(left, of_a)) {
    if (!std::getline(right, of_b) || of_a != of_b) break;
  }
  const auto key_of = [](const std::string& line) { return line.find_first_not_of(" -"); };
  const size_t begin = key_of(of_a);
  if (begin == std::string::npos || begin < 2) return "'' there";
  const std::string key = of_a.substr(begin);
  // The name is among the keys that follow.
  for (std::string line; std::getline(left, line) && key_of(line) >= begin;) {
    if (line[begin - 2] == '-') break;
    if (line.substr(begin).starts_with("name: ")) {
      return fmt::format("'{}' in the layer '{}'", key, line.substr(begin + 6));
    }
  }
  return fmt::format("'{}' there", key);
}

}  // namespace

IdentifiedModel identify_model(const ModelConfig& model, bool timm) {
  const std::string text = layers_text(model);
  const ConfigNode layers = parse_layers(text);
  std::string near, known;
  for (const HuggingFaceFamily& family : huggingface_families()) {
    if ((family.model_type == kTimm) != timm) continue;
    known += (known.empty() ? "" : ", ") + std::string(family.model_type);
    const auto json = family.propose(layers, model.vocab_size.value_or(0));
    if (!json) continue;
    const HuggingFaceOption none;
    for (const HuggingFaceOption& option : {none, family.option}) {
      const std::string meant = layers_of(*json, option);
      if (meant == text) {
        return {&family, *json, option.key == "bias", tied_layer(layers)};
      }
      if (!meant.empty() && near.empty()) {
        near = fmt::format(" (nearest is {}, which has no {})", family.model_type,
                           first_difference(text, meant));
      }
    }
  }
  fail(ExitCode::usage, "the model's layers match no family that can be exported: {}{}", known,
       near);
}

}  // namespace dltrain
