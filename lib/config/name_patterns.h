// Patterns over dotted names ("layers.0.weight"), as configuration keys take them: `*` stands for
// any characters (dots too), `?` for one, everything else for itself; a pattern fits a whole name.
// In a list the last pattern that fits decides, and a pattern behind `!` takes names out again:
// ["*", "!head.*"] is everything but the head.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/problems.h"

namespace dltrain {

// One pattern without `!`.
bool fits_pattern(std::string_view pattern, std::string_view name);

// Whether the list takes the name in.
bool selects(const std::vector<std::string>& patterns, std::string_view name);

// Reports, at `key` of `object`, every pattern that fits none of `names` (`what` they are:
// "parameter"), and a list that begins by taking out.
void check_patterns(Problems& problems, const Located& object, std::string_view key,
                    const std::vector<std::string>& patterns, const std::vector<std::string>& names,
                    std::string_view what);

}  // namespace dltrain
