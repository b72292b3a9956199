// Loads files, `extends`, `-s` overrides and the environment into one ConfigNode tree and binds it
// to a struct. All problems are reported together.
//
//   Experiment e = load_config<Experiment>({.files = {"exp.yaml"}, .overrides = {"seed=3"}});
//
// Order, later wins: the files' `extends` (deepest first), the files in the order given, the
// overrides. Maps merge deeply; lists and scalars replace; a map that chooses another `type`
// replaces (see merge_into). References to the environment expand last, so one in a value that is
// replaced need not be set.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/bind.h"
#include "config/diagnostics.h"
#include "config/tree.h"

namespace dltrain {

// Returns the value of an environment variable, or nothing if it is not set.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> environment_variable(const std::string& name);

struct ConfigInputs {
  std::vector<std::filesystem::path> files = {};  // may be empty: defaults and overrides alone
  std::vector<std::string> overrides = {};        // "optimizer.learning_rate=3e-4", as after -s
  EnvironmentLookup environment = environment_variable;
};

// Returns nothing if a text could not be read. After other problems (an invalid override, a missing
// variable) the tree can still be bound, so that its problems are reported too.
std::optional<ConfigNode> load_tree(const ConfigInputs& inputs, Diagnostics& diagnostics);

// Loads, binds and validates; throws ConfigError (exit code `usage`) with all problems.
template <typename T>
T load_config(const ConfigInputs& inputs) {
  Diagnostics diagnostics;
  T object;
  if (const auto tree = load_tree(inputs, diagnostics)) bind(object, *tree, diagnostics);
  diagnostics.throw_if_any();
  return object;
}

}  // namespace dltrain
