// Reads texts for the tests.
#pragma once

#include <memory>
#include <string>

#include "config/bind.h"
#include "config/diagnostics.h"
#include "config/yaml.h"
#include "example.h"

namespace dltrain::example {

inline std::shared_ptr<const Source> source(std::string text, std::string name = "exp.yaml") {
  return std::make_shared<Source>(Source{std::move(name), std::move(text)});
}

// The diagnostics of a text as one string; "" where the text is right.
template <typename T = Experiment>
std::string mistakes(const std::string& text) {
  Diagnostics diagnostics;
  T object;
  if (const auto tree = read_yaml(source(text), 0, diagnostics)) bind(object, *tree, diagnostics);
  return diagnostics.describe();
}

// A right text; throws ConfigError otherwise.
template <typename T = Experiment>
T read(const std::string& text) {
  Diagnostics diagnostics;
  T object;
  if (const auto tree = read_yaml(source(text), 0, diagnostics)) bind(object, *tree, diagnostics);
  diagnostics.throw_if_any();
  return object;
}

}  // namespace dltrain::example
