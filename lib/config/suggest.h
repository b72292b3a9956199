// Names of keys: the valid name nearest to a misspelt one, and paths of names.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace dltrain {

// Returns the nearest of `names` by edit distance, among equals the first that begins with the same
// letter, or an empty string if none is near enough. A third of the characters may differ; a name
// that begins with `wrong` is near. Else the longest name of four characters or more with which
// `wrong` begins.
std::string nearest_name(std::string_view wrong, std::span<const std::string> names);

// Returns whether the text contains this name as a whole word.
bool mentions_name(std::string_view text, std::string_view name);

// Returns "a, b, c".
std::string join_names(std::span<const std::string> names);
// Returns at most the first names: "a, b and 3 more".
std::string some_names(std::span<const std::string> names, size_t most = 5);

// Returns whether `names` contains `name`.
bool contains(std::span<const std::string> names, std::string_view name);

// Returns "path.name", or the other one if one is empty.
std::string join_path(std::string_view path, std::string_view name);

}  // namespace dltrain
