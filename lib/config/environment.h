// Expands ${NAME} and ${NAME:-default} in the scalars of a tree. `$${` means the text `${`.
//
// As in a shell, the default is used if the variable is unset or empty. The result is not parsed as
// YAML: a variable can be a number or a text, but not a list or a map.
#pragma once

#include <string>
#include <string_view>

#include "config/load.h"

namespace dltrain {

// Expands every scalar value, but no keys. A variable that is not set and has no default, and a
// malformed reference, are problems at the scalar's place.
void expand_environment(ConfigNode& tree, const EnvironmentLookup& environment,
                        Diagnostics& diagnostics);

// Escapes `text` so that expansion returns it: "${" becomes "$${".
std::string escape_references(std::string_view text);

}  // namespace dltrain
