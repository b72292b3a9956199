// The difference of two resolved configurations by key path: for "ranks started with different
// configurations", for resuming with another file, for reports.
#pragma once

#include <string>
#include <vector>

#include "config/tree.h"

namespace dltrain {

struct ConfigDifference {
  std::string path;           // "optimizer.learning_rate", "model.layers[2].features"
  std::string before, after;  // values as YAML; "" where that side has no such key
};

// In the order of `before`, then what only `after` has. Empty: the same values (places, quotes and
// the order of keys do not count).
std::vector<ConfigDifference> diff_configs(const ConfigNode& before, const ConfigNode& after);

// The same of two texts of dump_config().
std::vector<ConfigDifference> diff_dumps(const std::string& before, const std::string& after);

// One line a difference: "  optimizer.learning_rate: 0.1 -> 0.2", "  seed: absent -> 3".
std::string describe_differences(const std::vector<ConfigDifference>& differences);

}  // namespace dltrain
