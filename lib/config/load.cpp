#include "config/load.h"

#include <cstdlib>

#include "config/environment.h"
#include "config/files.h"
#include "config/override.h"

namespace dltrain {

std::optional<std::string> process_environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (!value) return {};
  return std::string(value);
}

std::optional<ConfigNode> load_tree(const ConfigInputs& inputs, Problems& problems) {
  std::optional<ConfigNode> tree = load_files(inputs.files, inputs.environment, problems);
  // Overrides are read in any case: their own mistakes belong into the same report.
  std::vector<Override> overrides = parse_overrides(inputs.overrides, problems);
  if (!tree) return {};
  apply_overrides(*tree, std::move(overrides), problems);
  expand_environment(*tree, inputs.environment, problems);
  return tree;
}

}  // namespace dltrain
