#include "nn/blocks.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "config/scalar.h"
#include "config/suggest.h"

namespace dltrain {
namespace {

constexpr size_t kMaxDepth = 16;       // blocks within blocks
constexpr size_t kMaxNodes = 1 << 20;  // of an expanded model

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool digit(char c) {
  return c >= '0' && c <= '9';
}

// `$name`, or a product of names and integers with at least one name, each of which may divide.
struct Reference {
  struct Name {
    std::string text;
    bool divides = false;
  };
  struct Factor {
    int64_t value;
    bool divides;
  };
  std::vector<Name> names;
  std::vector<Factor> factors;
  bool product = false;
};

bool mentions_parameter(const ConfigNode& node) {
  if (!node.is_scalar()) return false;
  for (size_t at = 0; at + 1 < node.text.size(); ++at) {
    if (node.text[at] == '$' && letter(node.text[at + 1])) return true;
  }
  return false;
}

// Empty where the text is neither.
std::optional<Reference> parse_reference(std::string_view text) {
  Reference out;
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
      while (at < text.size() && (letter(text[at]) || digit(text[at]))) ++at;
      if (at == begin + 1 || digit(text[begin + 1])) return {};
      out.names.push_back({std::string(text.substr(begin + 1, at - begin - 1)), divides});
    } else {
      while (at < text.size() && digit(text[at])) ++at;
      ConfigNode number;
      number.kind = ConfigNode::Kind::scalar;
      number.text = text.substr(begin, at - begin);
      const auto factor = as_integer(number);
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

// Calls `use` for every scalar in the tree.
template <typename Use>
void each_scalar(const ConfigNode& node, Use use) {
  if (node.is_scalar()) use(node);
  for (const ConfigNode& item : node.items) each_scalar(item, use);
}

size_t count_nodes(const ConfigNode& node) {
  size_t count = 1;
  for (const ConfigNode& item : node.items) count += count_nodes(item);
  return count;
}

std::string near(std::string_view wrong, const std::vector<std::string>& names) {
  const std::string found = nearest_name(wrong, names);
  if (!found.empty()) return fmt::format("; did you mean '{}'?", found);
  return names.empty() ? "" : fmt::format("; known: {}", join_names(names));
}

std::vector<std::string> parameter_names(const BlockDefinition& definition) {
  std::vector<std::string> names;
  for (const auto& parameter : definition.parameters) names.push_back(parameter.name.text);
  return names;
}

BlockDefinition::Parameter read_parameter(const ConfigNode::Key& name, const ConfigNode& node,
                                          Problems& problems) {
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
    problems.add(choices->place, "expected a list of words for the choices of a parameter");
  }
  return out;
}

void check_references(const BlockDefinition& definition, Problems& problems) {
  std::vector<std::string> names;  // that may stand where is looked
  std::vector<std::string> used;
  const auto check = [&](const ConfigNode& scalar) {
    if (!mentions_parameter(scalar)) return;
    const auto reference = parse_reference(scalar.text);
    if (!reference) {
      problems.add(scalar.place, fmt::format("'{}' is neither $name nor a product such as "
                                             "4 * $name",
                                             scalar.text));
      return;
    }
    for (const auto& [name, divides] : reference->names) {
      used.push_back(name);
      if (contains(names, name)) continue;
      problems.add(scalar.place, fmt::format("'{}' has no parameter '{}'{}", definition.name.text,
                                             name, near(name, names)));
    }
  };
  for (const auto& parameter : definition.parameters) {
    each_scalar(parameter.initial, check);  // those before it
    names.push_back(parameter.name.text);
  }
  each_scalar(definition.layers, check);
  for (const auto& parameter : definition.parameters) {
    if (contains(used, parameter.name.text)) continue;
    problems.add(parameter.name.place,
                 fmt::format("no layer of '{}' uses the parameter '{}' (as ${})",
                             definition.name.text, parameter.name.text, parameter.name.text));
  }
}

}  // namespace

BlockDefinition read_block(const ConfigNode::Key& name, const ConfigNode& node,
                           const std::vector<std::string>& reserved, Problems& problems) {
  BlockDefinition out{.name = name};
  if (!node.is_map()) {
    problems.add(node.place, fmt::format("expected a map with 'layers' in block '{}', got {}",
                                         name.text, describe_found(node)));
    return out;
  }
  for (const ConfigNode::Key& key : node.keys) {
    if (key.text == "layers" || key.text == "parameters") continue;
    problems.add(key.place, fmt::format("unknown key '{}' in block '{}'{}", key.text, name.text,
                                        near(key.text, {"parameters", "layers"})));
  }
  const ConfigNode* layers = node.find("layers");
  if (!layers || !layers->is_list() || layers->items.empty()) {
    problems.add(layers ? layers->place : name.place,
                 fmt::format("block '{}' needs a list of layers", name.text));
    return out;
  }
  out.layers = *layers;
  if (const ConfigNode* parameters = node.find("parameters");
      parameters && !parameters->is_null()) {
    if (!parameters->is_map()) {
      problems.add(parameters->place,
                   fmt::format("expected a map of parameters in block '{}', got {}", name.text,
                               describe_found(*parameters)));
      return out;
    }
    for (size_t i = 0; i < parameters->keys.size(); ++i) {
      const ConfigNode::Key& key = parameters->keys[i];
      if (contains(reserved, key.text)) {
        problems.add(key.place, fmt::format("a parameter cannot be called '{}', which is a key of "
                                            "its own",
                                            key.text));
      }
      out.parameters.push_back(read_parameter(key, parameters->items[i], problems));
    }
  }
  check_references(out, problems);
  return out;
}

// What the layers of a definition are copied with; of the model's own layers all is empty.
struct BlockExpander::Scope {
  const BlockDefinition* definition = nullptr;
  std::vector<ConfigNode> arguments = {};  // one a parameter
  std::vector<bool> given = {};            // or is it the default?
  std::shared_ptr<const Place> used_at = {};
  std::string used_as = {};
};

void BlockExpander::define(const ConfigNode& blocks) {
  if (blocks.is_null()) return;
  if (!blocks.is_map()) {
    problems_.add(blocks.place,
                  fmt::format("expected a map of blocks, got {}", describe_found(blocks)));
    return;
  }
  std::vector<std::string> reserved = common_;
  reserved.insert(reserved.end(), {"use", "block", "type"});
  for (size_t i = 0; i < blocks.keys.size(); ++i) {
    blocks_.push_back(read_block(blocks.keys[i], blocks.items[i], reserved, problems_));
  }
}

ConfigNode BlockExpander::expand(const ConfigNode& layers) {
  return copy(layers, {});
}

const BlockDefinition* BlockExpander::find(const ConfigNode& name) {
  std::vector<std::string> names;
  for (const BlockDefinition& block : blocks_) {
    if (name.is_scalar() && block.name.text == name.text) return &block;
    names.push_back(block.name.text);
  }
  problems_.add(name.place,
                name.is_scalar()
                    ? fmt::format("no block is called '{}'{}", name.text, near(name.text, names))
                    : fmt::format("expected the name of a block, got {}", describe_found(name)));
  return nullptr;
}

ConfigNode BlockExpander::copy(const ConfigNode& node, const Scope& scope) {
  if (++nodes_ > kMaxNodes) {
    if (nodes_ == kMaxNodes + 1) {
      problems_.add(node.place, fmt::format("blocks give more than {} values", kMaxNodes));
    }
    return {};
  }
  if (scope.definition && mentions_parameter(node)) return substitute(node, scope);
  const auto own_place = [&](const Place& place) {
    Place out = place;
    if (scope.used_at) {
      out.used_at = scope.used_at;
      out.used_as = scope.used_as;
    }
    return out;
  };
  const ConfigNode* type = node.is_map() ? node.find("type") : nullptr;
  const bool is_use =
      node.is_map() && !node.keys.empty() &&
      (type ? type->is_scalar() && type->text == "block" : node.keys[0].text == "block");
  ConfigNode out = node;
  out.place = own_place(node.place);
  for (ConfigNode::Key& key : out.keys) key.place = own_place(key.place);
  for (size_t i = 0; i < node.items.size(); ++i) out.items[i] = copy(node.items[i], scope);
  return is_use ? use(out, scope) : out;
}

ConfigNode BlockExpander::substitute(const ConfigNode& node, const Scope& scope) {
  const auto reference = parse_reference(node.text);
  if (!reference) return node;  // reported when the definition was read
  std::vector<const ConfigNode*> values;
  const ConfigNode* written = nullptr;  // whose place a product has: the first that is no default
  for (const auto& [name, divides] : reference->names) {
    const std::vector<std::string> names = parameter_names(*scope.definition);
    const auto at = std::find(names.begin(), names.end(), name);
    const auto i = static_cast<size_t>(at - names.begin());
    if (i >= scope.arguments.size()) return node;
    values.push_back(&scope.arguments[i]);
    if (written == nullptr && scope.given[i]) written = values.back();
  }
  if (!reference->product) {
    nodes_ += count_nodes(*values.front());
    return *values.front();
  }
  int64_t product = 1, divisor = 1;
  bool fits = true;
  const auto multiply = [&](int64_t factor, bool divides) {
    int64_t& into = divides ? divisor : product;
    fits = fits && !__builtin_mul_overflow(into, factor, &into);
  };
  for (const auto& [factor, divides] : reference->factors) multiply(factor, divides);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto factor = values[i]->is_scalar() ? as_integer(*values[i]) : std::nullopt;
    if (!factor) {
      problems_.add(
          values[i]->place,
          fmt::format("expected an integer for '{}' of '{}', got {}", reference->names[i].text,
                      scope.definition->name.text, describe_found(*values[i])));
      return node;
    }
    multiply(*factor, reference->names[i].divides);
  }
  ConfigNode out = written != nullptr ? *written : *values.front();
  if (!fits) {
    problems_.add(values.front()->place, "a product beyond 64 bits");
  } else if (divisor == 0 || product % divisor != 0) {
    problems_.add(out.place,
                  fmt::format("'{}' is {} / {}, no integer", node.text, product, divisor));
    return out;
  }
  out.text = std::to_string(fits ? product / divisor : 0);
  out.style = ConfigNode::Style::plain;
  return out;
}

// {block: NAME, argument: …}, {block: {use: NAME, argument: …}, …}, {type: block, use: NAME, …}:
// `node` is copied already, so that arguments are substituted.
ConfigNode BlockExpander::use(const ConfigNode& node, const Scope&) {
  ConfigNode keys = ConfigNode::make_map(node.place);
  std::optional<ConfigNode> name;
  for (size_t i = 0; i < node.keys.size(); ++i) {
    const ConfigNode& value = node.items[i];
    if (node.keys[i].text == "type") continue;
    if (node.keys[i].text == "use") {
      name = value;
    } else if (node.keys[i].text != "block") {
      keys.set(node.keys[i], value);
    } else if (!value.is_map()) {
      name = value;
    } else {
      for (size_t j = 0; j < value.keys.size(); ++j) {
        if (value.keys[j].text == "use") {
          name = value.items[j];
        } else {
          keys.set(value.keys[j], value.items[j]);
        }
      }
    }
  }
  if (!name) {
    problems_.add(node.place, "a block needs 'use', the name of a block");
    return node;
  }
  const BlockDefinition* definition = find(*name);
  if (!definition) return node;
  ConfigNode arguments = ConfigNode::make_map(node.place);
  ConfigNode out = ConfigNode::make_map(node.place);
  ConfigNode type;
  type.kind = ConfigNode::Kind::scalar;
  type.text = "sequential";
  type.place = name->place;
  out.set({"type", name->place}, type);
  for (size_t i = 0; i < keys.keys.size(); ++i) {
    const bool common = contains(common_, keys.keys[i].text);
    (common ? out : arguments).set(keys.keys[i], keys.items[i]);
  }
  const Place& place = name->place;
  out.set({"layers", place},
          instantiate(*definition, arguments, place, fmt::format("block '{}'", name->text)));
  return out;
}

ConfigNode BlockExpander::instantiate(const BlockDefinition& definition,
                                      const ConfigNode& arguments, const Place& place,
                                      const std::string& what) {
  const bool cycle = std::find(chain_.begin(), chain_.end(), &definition) != chain_.end();
  if (cycle || chain_.size() >= kMaxDepth) {
    std::string path;
    for (const BlockDefinition* outer : chain_) path += outer->name.text + " -> ";
    problems_.add(place, fmt::format("{}: {}{}",
                                     cycle ? "a block that uses itself" : "blocks nested too deep",
                                     path, definition.name.text));
    return {};
  }
  const std::vector<std::string> names = parameter_names(definition);
  for (const ConfigNode::Key& key : arguments.keys) {
    if (contains(names, key.text)) continue;
    problems_.add(key.place,
                  fmt::format("unknown key '{}' in {}{}", key.text, what, near(key.text, names)));
  }
  Scope scope{.definition = &definition,
              .arguments = {},
              .given = {},
              .used_at = std::make_shared<Place>(place),
              .used_as = what};
  for (const auto& parameter : definition.parameters) {
    const ConfigNode* given = arguments.find(parameter.name.text);
    if (!given && parameter.required) {
      problems_.add(place, fmt::format("missing key '{}' in {}", parameter.name.text, what));
    }
    const bool known = !given || parameter.choices.empty() ||
                       (given->is_scalar() && contains(parameter.choices, given->text));
    if (!known) {
      problems_.add(given->place, fmt::format("expected one of {} for '{}' in {}, got {}",
                                              join_names(parameter.choices), parameter.name.text,
                                              what, describe_found(*given)));
    }
    scope.arguments.push_back(given ? *given : copy(parameter.initial, scope));
    scope.given.push_back(given != nullptr);
  }
  chain_.push_back(&definition);
  ConfigNode layers = copy(definition.layers, scope);
  chain_.pop_back();
  return layers;
}

}  // namespace dltrain
