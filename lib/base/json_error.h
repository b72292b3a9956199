// Messages for the exceptions of the JSON library.
#pragma once

#include <string>
#include <string_view>

namespace dltrain {

// Shortens what() of a nlohmann::json::exception: removes the library's name and error number and
// the state of its parser. "line 1, column 9: unexpected end of input".
std::string json_error(std::string_view what);

}  // namespace dltrain
