// Names of keys: the valid name nearest to a misspelt one, and paths of names.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace dltrain {

// Returns the nearest of `names` by edit distance, the first among equals, or an empty string if
// none is near enough. About a third of the letters may differ; a name that begins with `wrong` is
// near.
std::string nearest_name(std::string_view wrong, std::span<const std::string> names);

// Returns whether the text contains this name as a whole word.
bool mentions_name(std::string_view text, std::string_view name);

// "a, b, c"
std::string join_names(std::span<const std::string> names);

// Returns whether `names` contains `name`.
bool contains(std::span<const std::string> names, std::string_view name);

// "path.name"; the other one alone where one of them is empty.
std::string join_path(std::string_view path, std::string_view name);

}  // namespace dltrain
