// Patterns for dotted names ("layers.0.weight") in configuration keys: `*` matches any characters
// (also dots), `?` one character; a pattern must match the complete name. In a list the last
// matching pattern decides, and a pattern after `!` excludes names: ["*", "!head.*"] matches
// everything but the head.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/diagnostics.h"

namespace dltrain {

// Matches one pattern without `!`.
bool matches_pattern(std::string_view pattern, std::string_view name);

// Returns whether the list selects the name.
bool selects(const std::vector<std::string>& patterns, std::string_view name);

// Reports, at `key` of `object`, every pattern that matches none of `names` (`what` describes them:
// "parameter"), and a list whose first pattern excludes names.
void check_patterns(Diagnostics& diagnostics, const ConfigObject& object, std::string_view key,
                    const std::vector<std::string>& patterns, const std::vector<std::string>& names,
                    std::string_view what);

}  // namespace dltrain
