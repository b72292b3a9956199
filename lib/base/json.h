// Reads and writes JSON. The library's parser and serializer are templates that take a second to
// compile in each file that calls them; these functions are compiled once.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace dltrain {

// Throw nlohmann::json::parse_error, whose text json_error() shortens.
nlohmann::json parse_json(std::string_view text);
nlohmann::ordered_json parse_ordered_json(std::string_view text);
// Return a discarded value if the text is no JSON.
nlohmann::json try_parse_json(std::string_view text);
nlohmann::ordered_json try_parse_ordered_json(std::string_view text);

// Returns a value as text, in which invalid UTF-8 (for example of paths) is replaced by U+FFFD.
// `indent`: spaces for each level; -1: all on one line.
std::string json_text(const nlohmann::json& json, int indent = -1);
std::string json_text(const nlohmann::ordered_json& json, int indent = -1);

// Shortens what() of a nlohmann::json::exception: removes the library's name and error number and
// the state of its parser. "line 1, column 9: unexpected end of input".
std::string json_error(std::string_view what);

}  // namespace dltrain
