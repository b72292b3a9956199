// The whole path from bytes to a typed struct, for the mutation test and for tests/fuzz/config.cpp.
#pragma once

#include <string>

#include "config/dump.h"
#include "config/environment.h"
#include "config/override.h"
#include "read.h"

namespace dltrain::example {

// Any bytes end in a ConfigError or in a configuration that its own dump gives back. Returns
// whether they were a configuration; throws std::logic_error where the dump does not read back.
inline bool survives(const std::string& text) {
  Diagnostics diagnostics;
  const auto text_source = source(text, "fuzz.yaml");
  auto tree = read_yaml(text_source, 0, diagnostics);
  std::vector<Override> overrides = parse_overrides({text.substr(0, text.find('\n'))}, diagnostics);
  if (!tree) {
    if (diagnostics.describe().empty()) throw std::logic_error("refused without a reason");
    return false;
  }
  apply_overrides(*tree, std::move(overrides), diagnostics);
  expand_environment(
      *tree, [](const std::string&) { return std::string("1"); }, diagnostics);
  Experiment experiment;
  Diagnostics found;
  bind(experiment, *tree, found);
  if (!found.empty()) {
    if (found.describe().empty()) throw std::logic_error("refused without a reason");
    return false;
  }
  const std::string once = dump_config(experiment);
  Diagnostics again;
  auto back = read_yaml(source(once), 0, again);
  Experiment second;
  if (back) {
    expand_environment(
        *back, [](const std::string&) { return std::nullopt; }, again);
    bind(second, *back, again);
  }
  if (!again.empty()) throw std::logic_error("the dump is refused: " + again.describe());
  if (dump_config(second) != once) throw std::logic_error("the dump changes: " + once);
  return true;
}

}  // namespace dltrain::example
