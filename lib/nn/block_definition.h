// The definition of a block as it is written, and the references to its parameters. What blocks
// are: nn/blocks.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/problems.h"
#include "config/tree.h"

namespace dltrain {

// A block, or a named architecture: parameters and layers.
struct BlockDefinition {
  struct Parameter {
    ConfigNode::Key name;
    bool required = true;
    ConfigNode initial = {};
    std::vector<std::string> choices = {};  // empty: anything
    std::string doc = {};
  };
  ConfigNode::Key name;
  std::vector<Parameter> parameters = {};
  ConfigNode layers = {};
};

// Reads `parameters` and `layers` of a definition, and that every $name in it is a parameter and
// every parameter is used. `reserved`: names that parameters cannot have.
BlockDefinition read_block(const ConfigNode::Key& name, const ConfigNode& node,
                           const std::vector<std::string>& reserved, Problems& problems);

// `$name`, or a product of names and integers with at least one name, each of which may divide.
struct BlockReference {
  struct Name {
    std::string text;
    bool divides = false;
  };
  struct Factor {
    int64_t value;
    bool divides;
  };
  std::vector<Name> names;
  std::vector<Factor> factors;
  bool product = false;
};

// Does the scalar hold a `$name`? Then it must be a reference.
bool mentions_parameter(const ConfigNode& node);
// Empty where the text is neither a name nor a product.
std::optional<BlockReference> parse_reference(std::string_view text);

std::vector<std::string> parameter_names(const BlockDefinition& definition);

// "; did you mean 'width'?", or the names that there are.
std::string suggest_near(std::string_view wrong, const std::vector<std::string>& names);

}  // namespace dltrain
