// "did you mean …?": the valid name nearest to a misspelt one.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace dltrain {

// Edits (insert, delete, replace, swap of neighbours; case is free) that turn one into the other.
size_t edit_distance(std::string_view a, std::string_view b);

// The nearest of `names`, the first among equals; empty where none is near enough to be meant
// (about a third of the letters may be wrong; a name that begins with the whole of `wrong` also
// counts).
std::string nearest_name(std::string_view wrong, std::span<const std::string> names);

// Whether the text has this name in it, and not as a part of a longer one.
bool mentions_name(std::string_view text, std::string_view name);

// "a, b, c"
std::string join_names(std::span<const std::string> names);

}  // namespace dltrain
