#include "config/diff.h"

#include <algorithm>

#include <fmt/format.h>

#include "config/diagnostics.h"
#include "config/scalar.h"
#include "config/suggest.h"
#include "config/yaml.h"

namespace dltrain {
namespace {

bool same_scalar(const ConfigNode& a, const ConfigNode& b) {
  const auto number_a = as_number(a), number_b = as_number(b);
  if (number_a && number_b) return *number_a == *number_b || a.text == b.text;
  return classify(a) == classify(b) && (a.text == b.text || classify(a) == ScalarType::null);
}

// Adds the differences of a and b to `found`.
void compare(const std::string& path, const ConfigNode& a, const ConfigNode& b,
             std::vector<ConfigDifference>& found) {
  if (a.is_map() && b.is_map()) {
    for (size_t i = 0; i < a.keys.size(); ++i) {
      const std::string inner = join_path(path, a.keys[i].text);
      if (const ConfigNode* other = b.find(a.keys[i].text)) {
        compare(inner, a.items[i], *other, found);
      } else {
        found.push_back({inner, flow_text(a.items[i]), ""});
      }
    }
    for (size_t i = 0; i < b.keys.size(); ++i) {
      if (a.find(b.keys[i].text)) continue;
      found.push_back({join_path(path, b.keys[i].text), "", flow_text(b.items[i])});
    }
  } else if (a.is_list() && b.is_list()) {
    for (size_t i = 0; i < std::max(a.items.size(), b.items.size()); ++i) {
      const std::string inner = fmt::format("{}[{}]", path, i);
      if (i >= b.items.size()) {
        found.push_back({inner, flow_text(a.items[i]), ""});
      } else if (i >= a.items.size()) {
        found.push_back({inner, "", flow_text(b.items[i])});
      } else {
        compare(inner, a.items[i], b.items[i], found);
      }
    }
  } else if (a.is_map() || a.is_list() || b.is_map() || b.is_list() || !same_scalar(a, b)) {
    found.push_back({path, flow_text(a), flow_text(b)});
  }
}

void add_keys(const std::string& path, const ConfigNode& node,
              std::vector<ConfigDifference>& found) {
  for (size_t i = 0; i < node.items.size(); ++i) {
    add_keys(node.is_map() ? join_path(path, node.keys[i].text) : fmt::format("{}[{}]", path, i),
             node.items[i], found);
  }
  if (node.items.empty()) found.push_back({path, "", flow_text(node)});
}

ConfigNode read_dump(const std::string& text) {
  Diagnostics diagnostics;
  auto node = read_yaml(std::make_shared<Source>(Source{"a configuration", text}), 0, diagnostics);
  diagnostics.throw_if_any();
  return std::move(*node);
}

}  // namespace

std::vector<ConfigDifference> diff_dumps(const std::string& before, const std::string& after) {
  std::vector<ConfigDifference> found;
  compare("", read_dump(before), read_dump(after), found);
  return found;
}

std::vector<ConfigDifference> keys_of_dump(const std::string& dump) {
  std::vector<ConfigDifference> found;
  add_keys("", read_dump(dump), found);
  return found;
}

std::string describe_differences(const std::vector<ConfigDifference>& differences) {
  std::string out;
  for (const ConfigDifference& difference : differences) {
    if (!out.empty()) out += '\n';
    const auto& [path, before, after] = difference;
    out += fmt::format("  {}: {} -> {}", path, before.empty() ? "absent" : before,
                       after.empty() ? "absent" : after);
  }
  return out;
}

}  // namespace dltrain
