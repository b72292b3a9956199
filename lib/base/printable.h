// Text from files and names, for a terminal.
#pragma once

#include <string>
#include <string_view>

namespace dltrain {

// Control characters, which a terminal would obey, and bytes that are no UTF-8 as text ("\x1b",
// "\u009b"); line ends and tabs stay.
std::string printable(std::string_view text);

}  // namespace dltrain
