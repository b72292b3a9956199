// The JSON Schema (draft 2020-12) of a configuration file, for editors that complete and check
// YAML.
//
// It accepts every file that the parser accepts, and refuses unknown keys, wrong types and values
// out of their limits; what only the parser knows (cross-field rules, required keys that `extends`
// or an override may give) it does not ask for.
#pragma once

#include <string>

#include "config/fields.h"

namespace dltrain {

// Pretty-printed, with a trailing newline. `object` is a default object and may be changed.
std::string config_schema(ObjectRef object, const std::string& title);

template <typename T>
std::string config_schema(const std::string& title) {
  T object;
  return config_schema(ObjectRef::of(object), title);
}

}  // namespace dltrain
