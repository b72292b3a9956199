// Names of state that belongs to other state: "momentum of layers.0.weight". Layers' names contain
// no blanks, so these names differ from those of all parameters. Nothing takes a name apart:
// GraphValue and StateTensor have the owner and the kind.
#pragma once

#include <string>
#include <string_view>

namespace dltrain {

inline std::string state_name(std::string_view kind, std::string_view owner) {
  return std::string(kind).append(" of ").append(owner);
}

}  // namespace dltrain
