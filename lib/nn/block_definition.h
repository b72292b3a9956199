// The definition of a block (nn/blocks.h) in the configuration, and the references to its
// parameters.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/diagnostics.h"
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

// Reads `parameters` and `layers` of a definition. Reports a $name that is not a parameter and a
// parameter that is not used. `reserved`: names that parameters cannot have.
BlockDefinition read_block(const ConfigNode::Key& name, const ConfigNode& node,
                           const std::vector<std::string>& reserved, Diagnostics& diagnostics);

// `$name`, or a product of names and integers, with division, that has at least one name.
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

// Returns true if the scalar contains a `$name`, so that it must be a reference.
bool mentions_parameter(const ConfigNode& node);
// Returns nothing if the text is neither a name nor a product.
std::optional<BlockReference> parse_reference(std::string_view text);

std::vector<std::string> parameter_names(const BlockDefinition& definition);

// Returns "; did you mean 'width'?", or a list of the names.
std::string suggest_near(std::string_view wrong, const std::vector<std::string>& names);

}  // namespace dltrain
