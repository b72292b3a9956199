// ${NAME} and ${NAME:-default} in the scalars of a tree. `$${` stands for the text `${`.
//
// As in a shell, the default is taken where the variable is unset or empty. The result is not read
// as YAML again: a variable can hold a number or a text, never a list or a map.
#pragma once

#include <string>
#include <string_view>

#include "config/load.h"

namespace dltrain {

// Expands every scalar value (keys are left alone). A variable that is not set and has no default,
// and a malformed reference, are problems at the scalar's place.
void expand_environment(ConfigNode& tree, const EnvironmentLookup& environment, Problems& problems);

// `text` such that expansion gives it back: "${" becomes "$${".
std::string escape_references(std::string_view text);

}  // namespace dltrain
