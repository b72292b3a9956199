// Loading: files, `extends`, `-s` overrides and the environment become one ConfigNode tree, and
// that tree a typed struct, with every mistake of all of them reported at once.
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
#include "config/problems.h"
#include "config/tree.h"

namespace dltrain {

// The value of an environment variable; empty where it is not set.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> process_environment(const std::string& name);

struct ConfigInputs {
  std::vector<std::filesystem::path> files = {};  // may be empty: defaults and overrides alone
  std::vector<std::string> overrides = {};        // "optimizer.learning_rate=3e-4", as after -s
  EnvironmentLookup environment = process_environment;
};

// Empty: a text could not be read at all. Other problems (a bad override, a missing variable) leave
// a tree that can still be bound, so that the mistakes in it are reported too.
std::optional<ConfigNode> load_tree(const ConfigInputs& inputs, Problems& problems);

// Loads, binds and validates; throws ConfigError (exit code `usage`) that holds all mistakes.
template <typename T>
T load_config(const ConfigInputs& inputs) {
  Problems problems;
  T object;
  if (const auto tree = load_tree(inputs, problems)) bind(object, *tree, problems);
  problems.throw_if_any();
  return object;
}

}  // namespace dltrain
