// Names of state that belongs to a parameter or buffer: "momentum of layers.0.weight". Layers' names
// contain no blanks, so these names differ from those of all parameters.
#pragma once

#include <string>
#include <string_view>

namespace dltrain {

inline std::string state_name(std::string_view kind, std::string_view owner) {
  return std::string(kind).append(" of ").append(owner);
}

// Returns the parameter or buffer that a name belongs to: the whole name if it is its own.
inline std::string_view owner_name(std::string_view name) {
  const size_t at = name.find(" of ");
  return at == std::string_view::npos ? name : name.substr(at + 4);
}

}  // namespace dltrain
