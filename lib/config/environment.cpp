#include "config/environment.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/utf8.h"
#include "config/scalar.h"

namespace dltrain {
namespace {

bool is_name(std::string_view name) {
  return !name.empty() && is_letter(name[0]) &&
         std::ranges::all_of(name, [](char c) { return is_letter(c) || is_digit(c); });
}

class Expander {
 public:
  Expander(const EnvironmentLookup& environment, Diagnostics& diagnostics)
      : environment_(environment), diagnostics_(diagnostics) {}

  void expand(ConfigNode& node) const {
    if (node.is_scalar() && node.text.find("${") != std::string::npos) expand_scalar(node);
    for (ConfigNode& item : node.items) expand(item);
  }

 private:
  void expand_scalar(ConfigNode& node) const {
    const std::string_view text = node.text;
    std::string out;
    size_t at = 0;
    bool whole = false;  // the scalar is one reference and nothing else
    while (at < text.size()) {
      if (text.substr(at).starts_with("$${")) {
        out += "${";
        at += 3;
      } else if (text.substr(at).starts_with("${")) {
        const size_t end = text.find('}', at);
        if (end == std::string_view::npos) {
          diagnostics_.add_cause(node.location,
                                 "'${' without '}'; write '$${' to get the text '${'");
          return;
        }
        whole = at == 0 && end + 1 == text.size();
        const auto value = reference(text.substr(at + 2, end - at - 2), node.location);
        if (!value) return;
        out += *value;
        at = end + 1;
      } else {
        out += text[at++];
      }
    }
    if (whole && node.style == ConfigNode::Style::quoted) node.style = ConfigNode::Style::either;
    node.text = std::move(out);
  }

  std::optional<std::string> reference(std::string_view inside,
                                       const SourceLocation& location) const {
    const size_t dash = inside.find(":-");
    const std::string name(inside.substr(0, dash));
    if (!is_name(name)) {
      diagnostics_.add_cause(
          location, "'${{{}}}' is not a variable name; write '$${{' to get the text '${{'", inside);
      return {};
    }
    auto value = environment_(name);
    if (dash != std::string_view::npos && (!value || value->empty())) {
      return std::string(inside.substr(dash + 2));
    }
    if (!value) {
      diagnostics_.add_cause(
          location,
          "the environment variable {0} is not set; write ${{{0}:-VALUE}} to give a default, or "
          "$${{{0}}} to keep the reference as text (for a shell)",
          name);
    } else if (find_invalid_utf8(*value)) {
      diagnostics_.add_cause(location, "the environment variable {} is not UTF-8 text", name);
      return {};
    }
    return value;
  }

  const EnvironmentLookup& environment_;
  Diagnostics& diagnostics_;
};

}  // namespace

void expand_environment(ConfigNode& tree, const EnvironmentLookup& environment,
                        Diagnostics& diagnostics) {
  Expander(environment, diagnostics).expand(tree);
}

std::string escape_references(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text.substr(at).starts_with("${")) out += '$';
    out += text[at];
  }
  return out;
}

}  // namespace dltrain
