#include "config/override.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "config/scalar.h"
#include "config/suggest.h"
#include "config/yaml.h"

namespace dltrain {
namespace {

// Reads `a.b[2].c`, the text before '='.
std::optional<std::vector<Override::Step>> read_path(const std::shared_ptr<const Source>& source,
                                                     size_t end, Diagnostics& diagnostics) {
  const std::string& text = source->text;
  const auto location = [&](size_t from, size_t to) {
    return SourceLocation{source, from, std::max<size_t>(1, to - from), {}};
  };
  std::vector<Override::Step> steps;
  for (size_t at = 0; steps.empty() || at < end;) {
    if (steps.empty() || text[at] == '.') {
      const size_t begin = steps.empty() ? 0 : at + 1;
      at = std::min(text.find_first_of(".[", begin), end);
      if (at == begin) {
        diagnostics.add(location(begin, begin + 1),
                        "expected a key here, as in optimizer.learning_rate=1");
        return {};
      }
      steps.push_back({text.substr(begin, at - begin), 0, location(begin, at)});
      continue;
    }
    const size_t close = std::min(text.find(']', at), end);
    size_t index = 0;
    const char *first = text.data() + at + 1, *last = text.data() + close;
    const bool bracket = text[at] == '[' && close < end;
    const auto [stop, error] = std::from_chars(first, bracket ? last : first, index);
    if (error != std::errc{} || stop != last) {
      diagnostics.add(location(at, std::min(close + 1, end)),
                      "expected an index such as [0], or '.' and a key");
      return {};
    }
    steps.push_back({"", index, location(at, close + 1)});
    at = close + 1;
  }
  return steps;
}

std::optional<Override> parse_override(const std::string& given, Diagnostics& diagnostics) {
  const size_t flag = given.starts_with("--") ? given.find(' ') + 1 : 0;  // the end of its name
  const std::string text = given.substr(flag);
  const size_t equals = text.find('=');
  const auto source = std::make_shared<Source>(Source{
      flag > 0 ? given.substr(0, flag) + text.substr(equals + 1) : "-s " + text, text, true});
  if (equals == std::string::npos) {
    diagnostics.add(SourceLocation{source, 0, std::max<size_t>(1, text.size()), {}},
                    "expected KEY=VALUE, as in optimizer.learning_rate=3e-4");
    return {};
  }
  auto path = read_path(source, equals, diagnostics);
  if (!path) return {};
  // YAML cannot express a comma without quotes, which a shell would remove.
  const bool comma = text.compare(equals + 1, std::string::npos, ",") == 0;
  auto value = comma ? ConfigNode::make_scalar(",", {source, equals + 1, 1, {}})
                     : read_yaml(source, equals + 1, diagnostics);
  if (!value) return {};
  const bool plain = value->is_scalar() && value->style == ConfigNode::Style::plain;
  if ((plain || value->is_null()) && text.find('#', equals) != std::string::npos) {
    // A comment makes no sense here: `try issue #12` is all text.
    const size_t first = text.find_first_not_of(' ', equals + 1);
    *value = ConfigNode::make_scalar(text.substr(first, text.find_last_not_of(' ') + 1 - first),
                                     value->location);
  }
  if (value->is_null() && equals + 1 >= text.size()) value->location = path->back().location;
  return Override{*std::move(path), *std::move(value)};
}

std::string path_text(const std::vector<Override::Step>& path, size_t steps) {
  std::string out;
  for (size_t i = 0; i < steps; ++i) {
    if (path[i].key.empty()) {
      out += fmt::format("[{}]", path[i].index);
    } else {
      out += (out.empty() ? "" : ".") + path[i].key;
    }
  }
  return out;
}

// Converts `node` to a map: null becomes an empty map, `relu` {type: relu}. Returns false if it
// cannot.
bool convert_to_map(ConfigNode& node, const SourceLocation& location) {
  if (node.is_map()) return true;
  if (node.is_null()) {
    node = ConfigNode::make_map(location);
    return true;
  }
  if (!node.is_scalar() || classify(node) != ScalarType::text) return false;
  ConfigNode map = ConfigNode::make_map(node.location);
  map.set({.text = "type", .location = node.location, .of_scalar = true}, node);
  node = std::move(map);
  return true;
}

// Marks the keys, at any depth, as written for `type`.
void mark_keys(ConfigNode& node, const std::string& type) {
  for (size_t i = 0; i < node.keys.size(); ++i) {
    node.keys[i].of_type = type;
    mark_keys(node.items[i], type);
  }
}

// Returns the old type of a map that is changed to another type, or an empty text.
std::string replaced_type(const ConfigNode& node, const Override::Step& step,
                          const ConfigNode& value) {
  const ConfigNode* type = node.find("type");
  const bool chooses = step.key == "type" && type && type->is_scalar() && value.is_scalar();
  return chooses && type->text != value.text ? type->text : "";
}

void apply_override(ConfigNode& tree, Override&& override, Diagnostics& diagnostics) {
  ConfigNode* node = &tree;
  const auto& path = override.path;
  for (size_t i = 0; i < path.size(); ++i) {
    const Override::Step& step = path[i];
    const bool last = i + 1 == path.size();
    const std::string where = path_text(path, i);
    if (step.key.empty()) {
      if (!node->is_list()) {
        diagnostics.add(step.location, "{} is {}, not a list", where, describe_found(*node));
        return;
      }
      if (step.index >= node->items.size()) {
        diagnostics.add(step.location, "{} has {} elements, none at [{}]", where,
                        node->items.size(), step.index);
        return;
      }
      node = &node->items[step.index];
      if (last) *node = std::move(override.value);
      continue;
    }
    if (!convert_to_map(*node, step.location)) {
      diagnostics.add(step.location, "{} is {}; it has no key '{}'", where, describe_found(*node),
                      step.key);
      return;
    }
    if (last) {
      if (const std::string old = replaced_type(*node, step, override.value); !old.empty()) {
        node->erase("type");
        mark_keys(*node, old);
      }
      ConfigNode laid = ConfigNode::make_map(node->location);
      laid.set({step.key, step.location}, std::move(override.value));
      merge_into(*node, std::move(laid));
      continue;
    }
    if (!node->find(step.key)) {
      if (path[i + 1].key.empty()) {
        diagnostics.add(step.location, "{0} is not in the file; give the whole list: -s '{0}=[…]'",
                        path_text(path, i + 1));
        return;
      }
      ConfigNode empty = ConfigNode::make_map(step.location);
      node->set({step.key, step.location}, std::move(empty));
    }
    node = node->find(step.key);
  }
}

}  // namespace

std::vector<Override> parse_overrides(const std::vector<std::string>& texts,
                                      Diagnostics& diagnostics) {
  std::vector<Override> overrides;
  for (const std::string& text : texts) {
    if (auto override = parse_override(text, diagnostics))
      overrides.push_back(*std::move(override));
  }
  return overrides;
}

void warn_of_dropped_keys(const std::string& path, const std::string& old, std::string_view type,
                          const std::vector<std::string>& keys, Diagnostics& diagnostics) {
  diagnostics.warn(
      fmt::format("{0}.type={1} instead of {2} drops the key{3} {4} of {0}; type {1} has {5}", path,
                  type, old, keys.size() == 1 ? "" : "s", join_names(keys),
                  keys.size() == 1 ? "no such key" : "no such keys"));
}

void apply_overrides(ConfigNode& tree, std::vector<Override> overrides, Diagnostics& diagnostics) {
  const auto chooses_type = [](const Override& override) {
    return override.path.size() > 1 && override.path.back().key == "type";
  };
  std::stable_partition(overrides.begin(), overrides.end(), chooses_type);
  for (Override& override : overrides) apply_override(tree, std::move(override), diagnostics);
}

}  // namespace dltrain
