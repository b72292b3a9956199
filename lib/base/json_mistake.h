// The words of the JSON library's exceptions in messages of ours.
#pragma once

#include <string>
#include <string_view>

namespace dltrain {

// From what() of a nlohmann::json::exception: without the library's own name and number, and
// without the state of its parser: "line 1, column 9: unexpected end of input".
std::string json_mistake(std::string_view what);

}  // namespace dltrain
