#include "config/scalar.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/utf8.h"

namespace dltrain {
namespace {

template <typename Accept>
size_t run_length(std::string_view text, Accept accept) {
  size_t n = 0;
  while (n < text.size() && accept(text[n])) ++n;
  return n;
}

std::string_view without_sign(std::string_view text) {
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) text.remove_prefix(1);
  return text;
}

bool one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

bool is_based_integer(std::string_view text, char base) {
  if (text.size() < 3 || text[0] != '0' || text[1] != base) return false;
  const auto digit = [&](char c) {
    if (base == 'o') return c >= '0' && c <= '7';
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  };
  return run_length(text.substr(2), digit) == text.size() - 2;
}

bool has_leading_zero(std::string_view digits) {
  return digits.size() > 1 && digits[0] == '0' && is_digit(digits[1]);
}

bool is_decimal_integer(std::string_view text) {
  text = without_sign(text);
  return !text.empty() && run_length(text, is_digit) == text.size() && !has_leading_zero(text);
}

bool is_decimal_number(std::string_view text) {
  text = without_sign(text);
  if (text.empty() || has_leading_zero(text) || !(is_digit(text[0]) || text[0] == '.'))
    return false;
  double value = 0;
  return std::from_chars(text.data(), text.data() + text.size(), value).ptr ==
         text.data() + text.size();
}

bool is_infinity(std::string_view text) {
  return one_of(without_sign(text), {".inf", ".Inf", ".INF"});
}
bool is_nan(std::string_view text) {
  return one_of(text, {".nan", ".NaN", ".NAN"});
}

bool text_only(const ConfigNode& node) {
  return !node.is_scalar() || node.style == ConfigNode::Style::quoted;
}

}  // namespace

ScalarType classify_plain(std::string_view text) {
  if (one_of(text, {"", "~", "null", "Null", "NULL"})) return ScalarType::null;
  if (one_of(text, {"true", "True", "TRUE", "false", "False", "FALSE"})) return ScalarType::boolean;
  if (is_decimal_integer(text) || is_based_integer(text, 'o') || is_based_integer(text, 'x')) {
    return ScalarType::integer;
  }
  if (is_decimal_number(text) || is_infinity(text) || is_nan(text)) return ScalarType::number;
  return ScalarType::text;
}

ScalarType classify(const ConfigNode& node) {
  if (node.is_null()) return ScalarType::null;
  return node.style == ConfigNode::Style::quoted ? ScalarType::text : classify_plain(node.text);
}

std::optional<bool> as_boolean(const ConfigNode& node) {
  if (text_only(node) || classify_plain(node.text) != ScalarType::boolean) return {};
  return node.text[0] == 't' || node.text[0] == 'T';
}

std::optional<int64_t> as_integer(const ConfigNode& node) {
  if (text_only(node) || classify_plain(node.text) != ScalarType::integer) return {};
  std::string_view digits = node.text;
  int base = 10;
  if (digits.size() > 2 && (digits[1] == 'x' || digits[1] == 'o')) {
    base = digits[1] == 'x' ? 16 : 8;
    digits.remove_prefix(2);
  } else if (digits[0] == '+') {
    digits.remove_prefix(1);
  }
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error != std::errc{} || end != digits.data() + digits.size()) return {};
  return value;
}

std::optional<double> as_number(const ConfigNode& node) {
  if (text_only(node)) return {};
  const ScalarType type = classify_plain(node.text);
  if (type != ScalarType::integer && type != ScalarType::number) return {};
  if (const auto integer = as_integer(node)) return static_cast<double>(*integer);
  std::string_view text = node.text;
  const bool negative = text[0] == '-';
  if (is_nan(text)) return std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  if (is_infinity(text)) return negative ? -infinity : infinity;
  if (text[0] == '+') text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) {
    // A too small number becomes zero, a too large one infinity, which the range check refuses.
    return std::strtod(std::string(text).c_str(), nullptr);
  }
  if (error != std::errc{} || end != text.data() + text.size()) return {};
  return value;
}

std::string scalar_hint(const ConfigNode& node, ScalarType wanted) {
  if (!node.is_scalar()) return {};
  const std::string& text = node.text;
  const bool wants_number = wanted == ScalarType::number || wanted == ScalarType::integer;
  if (node.style == ConfigNode::Style::quoted) {
    const ScalarType bare = classify_plain(text);
    const bool fits = bare == wanted || (wants_number && bare == ScalarType::integer);
    return fits ? "; remove the quotes" : "";
  }
  if (wanted == ScalarType::boolean) {
    if (one_of(text, {"yes", "Yes", "YES", "on", "On", "ON", "y", "Y", "1"})) return "; write true";
    if (one_of(text, {"no", "No", "NO", "off", "Off", "OFF", "n", "N", "0"}))
      return "; write false";
  }
  if (!wants_number) return {};
  const std::string_view digits = without_sign(text);
  if (has_leading_zero(digits) && run_length(digits, is_digit) == digits.size()) {
    const size_t zeros = std::min(digits.find_first_not_of('0'), digits.size() - 1);
    return fmt::format("; write {}{} (a leading zero means octal to some readers of YAML)",
                       text[0] == '-' ? "-" : "", digits.substr(zeros));
  }
  if (text.find('_') != std::string::npos || text.find(',') != std::string::npos) {
    std::string joined = text;
    std::erase_if(joined, [](char c) { return c == '_' || c == ','; });
    if (classify_plain(joined) == ScalarType::integer) return fmt::format("; write {}", joined);
  }
  if (wanted == ScalarType::integer) {
    const auto value = as_number(node);
    if (value && std::abs(*value) < 1e15 && *value == std::floor(*value)) {
      return fmt::format("; write {}", static_cast<int64_t>(*value));
    }
  }
  return {};
}

std::string number_text(double value) {
  if (std::isnan(value)) return ".nan";
  if (std::isinf(value)) return value < 0 ? "-.inf" : ".inf";
  if (value == std::floor(value) && std::abs(value) < 1e15) return fmt::format("{:.1f}", value);
  std::string text = fmt::format("{}", value);
  // YAML 1.1 readers (PyYAML) read 1e-05 as text, 1.0e-05 as a number.
  const size_t exponent = text.find('e');
  if (exponent != std::string::npos && text.find('.') == std::string::npos) {
    text.insert(exponent, ".0");
  }
  return text;
}

std::string quoted_when_needed(std::string_view text) {
  const auto plain_character = [](char c) {
    return is_digit(c) || is_letter(c) ||
           std::string_view("-./+*%=^").find(c) != std::string_view::npos;
  };
  const auto plain_start = [&](char c) {
    return is_digit(c) || is_letter(c) || c == '.' || c == '/';
  };
  const bool safe = !text.empty() && plain_start(text[0]) &&
                    std::all_of(text.begin(), text.end(), plain_character);
  // Words that some YAML readers do not read as text are quoted too.
  const bool trap =
      one_of(lower_ascii(text), {"y", "n", "yes", "no", "on", "off", "null", "true", "false"}) ||
      (safe && (is_digit(text[0]) ||
                (text[0] == '.' && text.size() > 1 && text[1] != '/' && text[1] != '.')));
  if (safe && !trap && text != "..." && classify_plain(text) == ScalarType::text) {
    return std::string(text);
  }
  // A JSON string is a YAML string if DEL is escaped too.
  std::string out = json_text(nlohmann::json(text));
  for (size_t at = out.find('\x7f'); at != std::string::npos; at = out.find('\x7f', at)) {
    out.replace(at, 1, "\\x7f");
  }
  return out;
}

std::string flow_text(const ConfigNode& node) {
  if (node.is_null()) return "null";
  if (node.is_scalar()) {
    return node.style == ConfigNode::Style::plain ? node.text : quoted_when_needed(node.text);
  }
  std::string out;
  for (size_t i = 0; i < node.items.size(); ++i) {
    out += i > 0 ? ", " : "";
    if (node.is_map()) out += quoted_when_needed(node.keys[i].text) + ": ";
    out += flow_text(node.items[i]);
  }
  return node.is_map() ? "{" + out + "}" : "[" + out + "]";
}

}  // namespace dltrain
