#include "nn/blocks.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include <fmt/format.h>

#include "config/override.h"
#include "config/scalar.h"
#include "config/suggest.h"

namespace dltrain {
namespace {

constexpr size_t kMaxDepth = 16;       // blocks within blocks
constexpr size_t kMaxNodes = 1 << 20;  // of an expanded model

size_t count_nodes(const ConfigNode& node) {
  size_t count = 1;
  for (const ConfigNode& item : node.items) count += count_nodes(item);
  return count;
}

}  // namespace

// The arguments and the place of a use of a definition; empty for the model's own layers.
struct BlockExpander::Scope {
  const BlockDefinition* definition = nullptr;
  std::vector<ConfigNode> arguments = {};  // one a parameter
  std::vector<bool> given = {};            // false: it is the default
  std::shared_ptr<const SourceLocation> used_at = {};
  std::string used_as = {};
};

void BlockExpander::define(const ConfigNode& blocks) {
  if (blocks.is_null()) return;
  if (!blocks.is_map()) {
    diagnostics_.add(blocks.location, "expected a map of blocks, got {}", describe_found(blocks));
    return;
  }
  std::vector<std::string> reserved = common_;
  reserved.insert(reserved.end(), {"use", "block", "type"});
  for (size_t i = 0; i < blocks.keys.size(); ++i) {
    blocks_.push_back(read_block(blocks.keys[i], blocks.items[i], reserved, diagnostics_));
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
  diagnostics_.add(
      name.location,
      name.is_scalar()
          ? fmt::format("no block is called '{}'{}", name.text, suggest_near(name.text, names))
          : fmt::format("expected the name of a block, got {}", describe_found(name)));
  return nullptr;
}

ConfigNode BlockExpander::copy(const ConfigNode& node, const Scope& scope) {
  if (++nodes_ > kMaxNodes) {
    if (nodes_ == kMaxNodes + 1) {
      diagnostics_.add(node.location, "blocks expand to more than {} values", kMaxNodes);
    }
    return {};
  }
  if (scope.definition && mentions_parameter(node)) return substitute(node, scope);
  const auto own_location = [&](const SourceLocation& location) {
    SourceLocation out = location;
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
  out.location = own_location(node.location);
  for (ConfigNode::Key& key : out.keys) key.location = own_location(key.location);
  for (size_t i = 0; i < node.items.size(); ++i) out.items[i] = copy(node.items[i], scope);
  return is_use ? use(out) : out;
}

ConfigNode BlockExpander::substitute(const ConfigNode& node, const Scope& scope) {
  const auto reference = parse_reference(node.text);
  if (!reference) return node;  // reported when the definition was read
  std::vector<const ConfigNode*> values;
  const ConfigNode* written = nullptr;  // its place becomes the product's
  for (const auto& [name, divides] : reference->names) {
    const std::vector<std::string> names = parameter_names(*scope.definition);
    const auto at = std::find(names.begin(), names.end(), name);
    const auto i = static_cast<size_t>(at - names.begin());
    if (i >= scope.arguments.size()) return node;
    values.push_back(&scope.arguments[i]);
    if (written == nullptr && scope.given[i]) written = values.back();
  }
  if (!reference->product) {
    // The count stops at the limit, so that the next value is reported as the first beyond it.
    nodes_ = std::min(nodes_ + count_nodes(*values.front()), kMaxNodes);
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
      diagnostics_.add(values[i]->location, "expected an integer for '{}' of '{}', got {}",
                       reference->names[i].text, scope.definition->name.text,
                       describe_found(*values[i]));
      return node;
    }
    multiply(*factor, reference->names[i].divides);
  }
  fits = fits && (divisor != -1 || product != INT64_MIN);
  ConfigNode out = written != nullptr ? *written : *values.front();
  if (!fits) {
    diagnostics_.add(values.front()->location, "the product exceeds 64 bits");
  } else if (divisor == 0 || product % divisor != 0) {
    diagnostics_.add(out.location, "'{}' is {} / {}, no integer", node.text, product, divisor);
    return out;
  }
  out.text = std::to_string(fits ? product / divisor : 0);
  out.style = ConfigNode::Style::plain;
  return out;
}

// Expands {block: NAME, argument: …}, {block: {use: NAME, argument: …}, …} or {type: block, use:
// NAME, …}. The arguments in `node` are already substituted.
ConfigNode BlockExpander::use(const ConfigNode& node) {
  ConfigNode keys = ConfigNode::make_map(node.location);
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
    diagnostics_.add(node.location, "a block needs 'use', the name of a block");
    return node;
  }
  const BlockDefinition* definition = find(*name);
  if (!definition) return node;
  ConfigNode arguments = ConfigNode::make_map(node.location);
  ConfigNode out = ConfigNode::make_map(node.location);
  out.set({"type", name->location}, ConfigNode::make_scalar("sequential", name->location));
  for (size_t i = 0; i < keys.keys.size(); ++i) {
    const bool common = contains(common_, keys.keys[i].text);
    (common ? out : arguments).set(keys.keys[i], keys.items[i]);
  }
  const SourceLocation& location = name->location;
  out.set({"layers", location},
          instantiate(*definition, arguments, location, fmt::format("block '{}'", name->text),
                      name->text + "."));
  return out;
}

ConfigNode BlockExpander::instantiate(const BlockDefinition& definition,
                                      const ConfigNode& arguments, const SourceLocation& location,
                                      const std::string& what, const std::string& prefix) {
  const bool cycle = std::find(chain_.begin(), chain_.end(), &definition) != chain_.end();
  if (cycle || chain_.size() >= kMaxDepth) {
    std::string path;
    for (const BlockDefinition* outer : chain_) path += outer->name.text + " -> ";
    diagnostics_.add(location, "{}: {}{}",
                     cycle ? "a block that uses itself" : "blocks nested too deep", path,
                     definition.name.text);
    return {};
  }
  const std::vector<std::string> names = parameter_names(definition);
  std::vector<std::string> dropped;
  std::string of_type;
  for (const ConfigNode::Key& key : arguments.keys) {
    if (contains(names, key.text)) continue;
    if (!key.of_type.empty()) {
      dropped.push_back(key.text);
      of_type = key.of_type;
      continue;
    }
    diagnostics_.add(key.location, "unknown key '{}' in {}{}", key.text, what,
                     suggest_near(key.text, names));
  }
  if (!dropped.empty()) {
    warn_of_dropped_keys("model", of_type, definition.name.text, dropped, diagnostics_);
  }
  Scope scope{.definition = &definition,
              .arguments = {},
              .given = {},
              .used_at = std::make_shared<SourceLocation>(location),
              .used_as = what};
  chain_.push_back(&definition);
  for (const auto& parameter : definition.parameters) {
    const ConfigNode* given = arguments.find(parameter.name.text);
    if (!given && parameter.required) {
      diagnostics_.add(location, "missing key '{}' in {}", parameter.name.text, what);
    }
    const bool known = !given || parameter.choices.empty() ||
                       (given->is_scalar() && contains(parameter.choices, given->text));
    if (!known) {
      diagnostics_.add(given->location, "expected one of {} for '{}' in {}, got {}",
                       join_names(parameter.choices), parameter.name.text, what,
                       describe_found(*given));
    }
    scope.arguments.push_back(given ? *given : copy(parameter.initial, scope));
    scope.given.push_back(given != nullptr);
    std::string& argument = scope.arguments.back().location.argument;
    if (argument.empty()) argument = prefix + parameter.name.text;
  }
  ConfigNode layers = copy(definition.layers, scope);
  chain_.pop_back();
  return layers;
}

}  // namespace dltrain
