#include "config/parse_value.h"

#include <cmath>

#include <fmt/format.h>

#include "config/scalar.h"
#include "config/suggest.h"

namespace dltrain {
namespace {

// Integral limits have no fraction.
std::string limit_text(double limit) {
  return limit == std::floor(limit) && std::abs(limit) < 1e15
             ? std::to_string(static_cast<int64_t>(limit))
             : fmt::format("{}", limit);
}

const char* elements(size_t n) {
  return n == 1 ? "element" : "elements";
}

bool in_range(double value, const Key& key) {
  return !(key.min && value < *key.min) && !(key.max && value > *key.max) &&
         !(key.above && value <= *key.above) && !(key.below && value >= *key.below);
}

// Parses one value. The elements of a list have different nodes, but the same rules.
class ValueParser {
 public:
  ValueParser(const std::string& path, const ValueSlot& slot, const Key& key,
              Diagnostics& diagnostics)
      : path_(path), slot_(slot), key_(key), diagnostics_(diagnostics) {}

  std::optional<Value> parse(const ConfigNode& node) const {
    const bool collection = node.is_list() || node.is_map();
    if (!collection && classify(node) == ScalarType::null && may_be_null(slot_, key_)) {
      return slot_.optional ? Value() : slot_.get();
    }
    if (slot_.allow_auto && node.is_scalar() && node.text == "auto") return Value(Auto{});
    switch (slot_.type) {
      case ValueType::boolean:
        return wrap(boolean(node));
      case ValueType::integer:
        return wrap(integer(node));
      case ValueType::number:
        return wrap(number(node));
      case ValueType::text:
        return wrap(text(node));
      case ValueType::choice:
        return wrap(choice(node));
      case ValueType::integers:
        return list<int64_t>(node, "integers", &ValueParser::integer);
      case ValueType::numbers:
        return list<double>(node, "numbers", &ValueParser::number);
      case ValueType::texts:
        return list<std::string>(node, "texts", &ValueParser::text);
      case ValueType::text_map:
        return text_map(node);
    }
    return {};
  }

 private:
  template <typename T>
  static std::optional<Value> wrap(std::optional<T> value) {
    if (!value) return {};
    return Value(*std::move(value));
  }

  void mismatch(const ConfigNode& node, std::string_view expected, ScalarType wanted) const {
    diagnostics_.add(node.location, "expected {}{} for {}, got {}{}", expected,
                     slot_.allow_auto ? " or auto" : "", path_, describe_found(node),
                     scalar_hint(node, wanted));
  }

  std::optional<bool> boolean(const ConfigNode& node) const {
    const auto value = as_boolean(node);
    if (!value) mismatch(node, "true or false", ScalarType::boolean);
    return value;
  }

  std::optional<int64_t> integer(const ConfigNode& node) const {
    const auto value = as_integer(node);
    if (!value) {
      if (classify(node) == ScalarType::integer) {
        diagnostics_.add(node.location, "{} does not fit 64 bits in {}", node.text, path_);
      } else {
        mismatch(node, "an integer", ScalarType::integer);
      }
      return {};
    }
    const double exact = static_cast<double>(*value);
    const bool fits = *value >= slot_.lowest && *value <= slot_.highest;
    if (!fits || !in_range(exact, key_)) {
      diagnostics_.add(node.location, "{} must be {}, got {}", path_, describe_range(key_, &slot_),
                       node.text);
      return {};
    }
    return value;
  }

  std::optional<double> number(const ConfigNode& node) const {
    const auto value = as_number(node);
    if (!value) {
      mismatch(node, "a number", ScalarType::number);
      return {};
    }
    if (!std::isfinite(*value)) {
      diagnostics_.add(node.location, "{} must be a finite number, got {}", path_, node.text);
      return {};
    }
    if (!in_range(*value, key_)) {
      diagnostics_.add(node.location, "{} must be {}, got {}", path_, describe_range(key_, nullptr),
                       node.text);
      return {};
    }
    return value;
  }

  // Numbers are accepted as text (`name: 42`). true, false and null are refused, because they are
  // more often errors than names.
  std::optional<std::string> text(const ConfigNode& node) const {
    const ScalarType type = classify(node);
    if (node.text.find('\0') != std::string::npos) {
      diagnostics_.add(node.location, "a zero byte in {}", path_);
      return {};
    }
    if (node.is_scalar() && type != ScalarType::boolean && type != ScalarType::null) {
      return node.text;
    }
    if (node.is_scalar() && node.style == ConfigNode::Style::either) return node.text;
    diagnostics_.add(node.location, "expected text for {}, got {}{}", path_, describe_found(node),
                     type == ScalarType::boolean
                         ? fmt::format("; write \"{}\" in quotes if it is meant", node.text)
                         : "");
    return {};
  }

  std::optional<std::string> choice(const ConfigNode& node) const {
    std::vector<std::string> names;
    for (const ChoiceName& choice : slot_.choices) names.push_back(choice.name);
    const std::string all = join_names(names);
    if (!node.is_scalar()) {
      diagnostics_.add(node.location, "expected one of {} for {}, got {}", all, path_,
                       describe_found(node));
      return {};
    }
    if (contains(names, node.text)) return node.text;
    const std::string near = nearest_name(node.text, names);
    diagnostics_.add(node.location, "unknown value '{}' for {}; {}", node.text, path_,
                     near.empty() ? fmt::format("known values: {}", all)
                                  : fmt::format("did you mean '{}'?", near));
    return {};
  }

  template <typename T>
  std::optional<Value> list(const ConfigNode& node, std::string_view what,
                            std::optional<T> (ValueParser::*element)(const ConfigNode&)
                                const) const {
    std::vector<T> out;
    if (key_.scalar_ok && node.is_scalar()) {
      const auto value = (this->*element)(node);
      if (!value) return {};
      out.push_back(*value);
      return Value(std::move(out));
    }
    if (!node.is_list()) {
      mismatch(node, fmt::format("a list of {}", what), ScalarType::text);
      return {};
    }
    const size_t before = diagnostics_.reported();
    check_size(node, path_, key_, diagnostics_);
    for (size_t i = 0; i < node.items.size(); ++i) {
      const std::string path = fmt::format("{}[{}]", path_, i);
      const ValueParser each(path, slot_, key_, diagnostics_);
      if (const auto value = (each.*element)(node.items[i])) out.push_back(*value);
    }
    if (diagnostics_.reported() != before) return {};
    return Value(std::move(out));
  }

  std::optional<Value> text_map(const ConfigNode& node) const {
    if (key_.scalar_ok && node.is_scalar()) {
      const auto value = text(node);
      const auto defaults = std::get<TextPairs>(slot_.get());
      if (!value || defaults.empty()) return {};
      return Value(TextPairs{{defaults.front().first, *value}});
    }
    if (!node.is_map()) {
      mismatch(node, "a map of texts", ScalarType::text);
      return {};
    }
    const size_t before = diagnostics_.reported();
    check_size(node, path_, key_, diagnostics_);
    TextPairs out;
    for (size_t i = 0; i < node.items.size(); ++i) {
      const std::string path = fmt::format("{}.{}", path_, node.keys[i].text);
      const ValueParser each(path, slot_, key_, diagnostics_);
      if (auto value = each.text(node.items[i])) {
        out.emplace_back(node.keys[i].text, *std::move(value));
      }
    }
    if (diagnostics_.reported() != before) return {};
    return Value(std::move(out));
  }

  const std::string& path_;
  const ValueSlot& slot_;
  const Key& key_;
  Diagnostics& diagnostics_;
};

}  // namespace

std::string describe_range(const Key& key, const ValueSlot* slot) {
  std::string low, high;
  if (key.min) low = "at least " + limit_text(*key.min);
  if (key.above) low = "above " + limit_text(*key.above);
  if (key.max) high = "at most " + limit_text(*key.max);
  if (key.below) high = "below " + limit_text(*key.below);
  if (slot && low.empty() && slot->lowest > INT64_MIN) {
    low = fmt::format("at least {}", slot->lowest);
  }
  if (slot && high.empty() && slot->highest < INT64_MAX) {
    high = fmt::format("at most {}", slot->highest);
  }
  if (low.empty() || high.empty()) return low + high;
  return low + " and " + high;
}

std::string describe_size(const Key& key) {
  if (key.min_size && key.max_size) {
    if (*key.min_size == *key.max_size) {
      return fmt::format("{} {}", *key.min_size, elements(*key.min_size));
    }
    return fmt::format("{} to {} elements", *key.min_size, *key.max_size);
  }
  if (key.min_size) return fmt::format("at least {} {}", *key.min_size, elements(*key.min_size));
  if (key.max_size) return fmt::format("at most {} {}", *key.max_size, elements(*key.max_size));
  return {};
}

bool may_be_null(const ValueSlot& slot, const Key& key) {
  const auto is_empty = [](const auto& value) {
    if constexpr (requires { value.empty(); }) {
      return value.empty();
    } else {
      return false;
    }
  };
  return slot.optional || (!key.required && std::visit(is_empty, slot.get()));
}

std::optional<Value> parse_value(const ConfigNode& node, const std::string& path,
                                 const ValueSlot& slot, const Key& key, Diagnostics& diagnostics) {
  return ValueParser(path, slot, key, diagnostics).parse(node);
}

void check_size(const ConfigNode& node, const std::string& path, const Key& key,
                Diagnostics& diagnostics) {
  const size_t size = node.items.size();
  if ((key.min_size && size < *key.min_size) || (key.max_size && size > *key.max_size)) {
    diagnostics.add(node.location, "{} must have {}, got {}", path, describe_size(key), size);
  }
}

}  // namespace dltrain
