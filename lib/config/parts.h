// Checks of the parts of a map (Fields::parts()) and their common keys.
#pragma once

#include <string>

#include "config/diagnostics.h"
#include "config/slots.h"
#include "config/tree.h"

namespace dltrain {

// `map` holds the parts, `common` its other keys, and `path` is its name ("data").

// Refuses a common key that every part overrides, because it has no effect, if it comes from -s or
// from the same text as the parts. A file that extends another may override its common keys.
// Returns those from -s that replace the one value that all parts have, as in a resolved
// configuration.
ConfigNode check_common_keys(const PartsSlot& parts, const ConfigNode& map,
                             const ConfigNode& common, const std::string& path,
                             Diagnostics& diagnostics);

// Reports a part whose kind is missing although the first part has one of its own, and then returns
// true. `node`: the keys of part number `index` with the common keys.
bool refuse_borrowed_kind(const PartsSlot& parts, size_t index, const ConfigNode& map,
                          const ConfigNode& node, const std::string& path,
                          Diagnostics& diagnostics);

}  // namespace dltrain
