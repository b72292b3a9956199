// Reads one node as the value that a ValueSlot describes, with every check of its Key.
#pragma once

#include <optional>
#include <string>

#include "config/fields.h"
#include "config/problems.h"
#include "config/tree.h"

namespace dltrain {

// Empty: `problems` says what is wrong. `path` names the value in messages.
std::optional<Value> parse_value(const ConfigNode& node, const std::string& path,
                                 const ValueSlot& slot, const Key& key, Problems& problems);

// Reports a list or map with fewer or more elements than `key` allows.
void check_size(const ConfigNode& node, const std::string& path, const Key& key,
                Problems& problems);

}  // namespace dltrain
