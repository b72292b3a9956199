#include "nn/block_definition.h"

#include <algorithm>

#include <fmt/format.h>

#include "config/scalar.h"
#include "config/suggest.h"

namespace dltrain {
namespace {

// Calls `use` for every scalar in the tree.
template <typename Use>
void each_scalar(const ConfigNode& node, Use use) {
  if (node.is_scalar()) use(node);
  for (const ConfigNode& item : node.items) each_scalar(item, use);
}

BlockDefinition::Parameter read_parameter(const ConfigNode::Key& name, const ConfigNode& node,
                                          Diagnostics& diagnostics) {
  BlockDefinition::Parameter out{.name = name};
  const bool declared =
      node.is_map() && !node.keys.empty() &&
      std::all_of(node.keys.begin(), node.keys.end(), [](const auto& key) {
        return key.text == "default" || key.text == "choices" || key.text == "doc";
      });
  const ConfigNode* initial = declared ? node.find("default") : &node;
  if (initial && !initial->is_null()) {
    out.required = false;
    out.initial = *initial;
  }
  if (!declared) return out;
  if (const ConfigNode* doc = node.find("doc"); doc && doc->is_scalar()) out.doc = doc->text;
  const ConfigNode* choices = node.find("choices");
  for (size_t i = 0; choices && i < choices->items.size(); ++i) {
    if (choices->items[i].is_scalar()) out.choices.push_back(choices->items[i].text);
  }
  if (choices && (!choices->is_list() || out.choices.size() != choices->items.size())) {
    diagnostics.add(choices->location, "expected a list of words for the choices of a parameter");
  }
  return out;
}

void check_references(const BlockDefinition& definition, Diagnostics& diagnostics) {
  std::vector<std::string> names;  // parameters that may be used here
  std::vector<std::string> used;
  const auto check = [&](const ConfigNode& scalar) {
    if (!mentions_parameter(scalar)) return;
    const auto reference = parse_reference(scalar.text);
    if (!reference) {
      diagnostics.add(scalar.location, "'{}' is neither $name nor a product such as 4 * $name",
                      scalar.text);
      return;
    }
    for (const auto& [name, divides] : reference->names) {
      used.push_back(name);
      if (contains(names, name)) continue;
      diagnostics.add(scalar.location, "'{}' has no parameter '{}'{}", definition.name.text, name,
                      suggest_near(name, names));
    }
  };
  for (const auto& parameter : definition.parameters) {
    each_scalar(parameter.initial, check);  // only earlier parameters
    names.push_back(parameter.name.text);
  }
  each_scalar(definition.layers, check);
  for (const auto& parameter : definition.parameters) {
    if (contains(used, parameter.name.text)) continue;
    diagnostics.add(parameter.name.location, "no layer of '{}' uses the parameter '{}' (as ${})",
                    definition.name.text, parameter.name.text, parameter.name.text);
  }
}

}  // namespace

bool mentions_parameter(const ConfigNode& node) {
  if (!node.is_scalar()) return false;
  for (size_t at = 0; at + 1 < node.text.size(); ++at) {
    if (node.text[at] == '$' && is_letter(node.text[at + 1])) return true;
  }
  return false;
}

std::optional<BlockReference> parse_reference(std::string_view text) {
  BlockReference out;
  size_t at = 0;
  bool divides = false;
  const auto spaces = [&] {
    while (at < text.size() && text[at] == ' ') ++at;
  };
  for (;;) {
    spaces();
    const size_t begin = at;
    if (at < text.size() && text[at] == '$') {
      ++at;
      while (at < text.size() && (is_letter(text[at]) || is_digit(text[at]))) ++at;
      if (at == begin + 1 || is_digit(text[begin + 1])) return {};
      out.names.push_back({std::string(text.substr(begin + 1, at - begin - 1)), divides});
    } else {
      while (at < text.size() && is_digit(text[at])) ++at;
      const std::string number(text.substr(begin, at - begin));
      const auto factor = as_integer(ConfigNode::make_scalar(number, {}));
      if (!factor) return {};
      out.factors.push_back({*factor, divides});
    }
    spaces();
    if (at == text.size()) break;
    if (text[at] != '*' && text[at] != '/') return {};
    divides = text[at++] == '/';
    out.product = true;
  }
  if (out.names.empty()) return {};
  return out;
}

std::vector<std::string> parameter_names(const BlockDefinition& definition) {
  std::vector<std::string> names;
  for (const auto& parameter : definition.parameters) names.push_back(parameter.name.text);
  return names;
}

std::string suggest_near(std::string_view wrong, const std::vector<std::string>& names) {
  const std::string found = nearest_name(wrong, names);
  if (!found.empty()) return fmt::format("; did you mean '{}'?", found);
  return names.empty() ? "" : fmt::format("; known: {}", join_names(names));
}

BlockDefinition read_block(const ConfigNode::Key& name, const ConfigNode& node,
                           const std::vector<std::string>& reserved, Diagnostics& diagnostics) {
  BlockDefinition out{.name = name};
  if (!node.is_map()) {
    diagnostics.add(node.location, "expected a map with 'layers' in block '{}', got {}", name.text,
                    describe_found(node));
    return out;
  }
  for (const ConfigNode::Key& key : node.keys) {
    if (key.text == "layers" || key.text == "parameters") continue;
    diagnostics.add(key.location, "unknown key '{}' in block '{}'{}", key.text, name.text,
                    suggest_near(key.text, {"parameters", "layers"}));
  }
  const ConfigNode* layers = node.find("layers");
  if (!layers || !layers->is_list() || layers->items.empty()) {
    diagnostics.add(layers ? layers->location : name.location, "block '{}' needs a list of layers",
                    name.text);
    return out;
  }
  out.layers = *layers;
  if (const ConfigNode* parameters = node.find("parameters");
      parameters && !parameters->is_null()) {
    if (!parameters->is_map()) {
      diagnostics.add(parameters->location, "expected a map of parameters in block '{}', got {}",
                      name.text, describe_found(*parameters));
      return out;
    }
    for (size_t i = 0; i < parameters->keys.size(); ++i) {
      const ConfigNode::Key& key = parameters->keys[i];
      if (contains(reserved, key.text)) {
        diagnostics.add(key.location,
                        "a parameter cannot be called '{}', because that is another key", key.text);
      }
      out.parameters.push_back(read_parameter(key, parameters->items[i], diagnostics));
    }
  }
  check_references(out, diagnostics);
  return out;
}

}  // namespace dltrain
