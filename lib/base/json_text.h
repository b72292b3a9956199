// JSON as text.
#pragma once

#include <string>

namespace dltrain {

// Returns a JSON value (nlohmann::json or ordered_json) as text on one line, in which invalid UTF-8
// (for example of paths) is replaced by U+FFFD.
template <typename Json>
std::string json_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace dltrain
