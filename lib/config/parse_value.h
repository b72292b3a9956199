// Reads one node as the value that a ValueSlot describes, with every check of its Key; and the
// limits of a Key as text.
#pragma once

#include <optional>
#include <string>

#include "config/diagnostics.h"
#include "config/fields.h"
#include "config/tree.h"

namespace dltrain {

// Returns nothing if there are problems. `path` names the value in messages.
std::optional<Value> parse_value(const ConfigNode& node, const std::string& path,
                                 const ValueSlot& slot, const Key& key, Diagnostics& diagnostics);

// Returns whether a value may be written `null`: that of an optional member, or of a key that need
// not be given and is empty by default.
bool may_be_null(const ValueSlot& slot, const Key& key);

// Reports a list or map with fewer or more elements than `key` allows.
void check_size(const ConfigNode& node, const std::string& path, const Key& key,
                Diagnostics& diagnostics);

// Returns "at least 1", "above 0 and at most 1", …; `slot` adds the limits of the member's integer
// type if the key has none. Empty: no limit.
std::string describe_range(const Key& key, const ValueSlot* slot);

// Returns "2 elements", "at least 1 element", "1 to 3 elements", or nothing without limits.
std::string describe_size(const Key& key);

}  // namespace dltrain
