// The difference of two resolved configurations by key path: for ranks that were started with
// different configurations, and for resuming with another file.
#pragma once

#include <string>
#include <vector>

namespace dltrain {

struct ConfigDifference {
  std::string path;           // "optimizer.learning_rate", "model.layers[2].features"
  std::string before, after;  // values as YAML; "" where that side has no such key
};

// Compares two texts of dump_config(). Returns the differences in the order of `before`, then the
// keys that only `after` has. Quotes and the order of keys do not count.
std::vector<ConfigDifference> diff_dumps(const std::string& before, const std::string& after);

// Returns the keys of a text of dump_config() that have no keys below them, with their values.
// Items of lists are keys too: "model.layers[2].type".
std::vector<ConfigDifference> keys_of_dump(const std::string& dump);

// One line a difference: "  optimizer.learning_rate: 0.1 -> 0.2", "  seed: absent -> 3".
std::string describe_differences(const std::vector<ConfigDifference>& differences);

}  // namespace dltrain
