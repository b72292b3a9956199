#include "config/tree.h"

#include <utility>

#include <fmt/format.h>

#include "base/utf8.h"
#include "config/scalar.h"

namespace dltrain {
namespace {

bool chooses_other_kind(const ConfigNode& base, const ConfigNode& over) {
  const ConfigNode* before = base.find("type");
  const ConfigNode* after = over.find("type");
  return before && after && before->is_scalar() && after->is_scalar() &&
         before->text != after->text;
}

}  // namespace

const ConfigNode* ConfigNode::find(std::string_view key) const {
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i].text == key) return &items[i];
  }
  return nullptr;
}

ConfigNode* ConfigNode::find(std::string_view key) {
  return const_cast<ConfigNode*>(std::as_const(*this).find(key));
}

void ConfigNode::set(Key key, ConfigNode value) {
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i].text == key.text) {
      keys[i] = std::move(key);
      items[i] = std::move(value);
      return;
    }
  }
  keys.push_back(std::move(key));
  items.push_back(std::move(value));
}

void ConfigNode::erase(std::string_view key) {
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i].text == key) {
      keys.erase(keys.begin() + static_cast<long>(i));
      items.erase(items.begin() + static_cast<long>(i));
      return;
    }
  }
}

ConfigNode ConfigNode::make_map(SourceLocation location) {
  ConfigNode node;
  node.kind = Kind::map;
  node.location = std::move(location);
  return node;
}

ConfigNode ConfigNode::make_scalar(std::string text, SourceLocation location, Style style) {
  ConfigNode node;
  node.kind = Kind::scalar;
  node.style = style;
  node.text = std::move(text);
  node.location = std::move(location);
  return node;
}

void merge_into(ConfigNode& base, ConfigNode over) {
  if (!base.is_map() || !over.is_map() || chooses_other_kind(base, over)) {
    base = std::move(over);
    return;
  }
  base.location = over.location;
  for (size_t i = 0; i < over.keys.size(); ++i) {
    if (ConfigNode* old = base.find(over.keys[i].text)) {
      ConfigNode merged = std::move(*old);
      merge_into(merged, std::move(over.items[i]));
      base.set(std::move(over.keys[i]), std::move(merged));
    } else {
      base.set(std::move(over.keys[i]), std::move(over.items[i]));
    }
  }
}

std::string describe_found(const ConfigNode& node) {
  switch (node.kind) {
    case ConfigNode::Kind::null:
      return "nothing";
    case ConfigNode::Kind::list:
      return "a list";
    case ConfigNode::Kind::map:
      return "a map";
    case ConfigNode::Kind::scalar:
      break;
  }
  const std::string shown = shown_line(node.text, 60);
  switch (classify(node)) {
    case ScalarType::null:
      return "nothing";
    case ScalarType::boolean:
      return shown;
    case ScalarType::integer:
    case ScalarType::number:
      return fmt::format("the number {}", shown);
    case ScalarType::text:
      break;
  }
  const bool looks_typed = node.style == ConfigNode::Style::quoted &&
                           classify_plain(node.text) != ScalarType::text && !node.text.empty();
  return fmt::format("the {}text '{}'", looks_typed ? "quoted " : "", shown);
}

}  // namespace dltrain
